"""Readings are majority labels; half-blank images show the given images on one side."""

import pytest
import torch

import geh_explain as geh
from geh_explain.interpret import half_blank, reading


def test_a_reading_is_the_majority_label():
    assert str(reading(["a", "b", "b"])) == "b, 2 of 3"
    assert reading(torch.tensor([7, 7, 9])).share == pytest.approx(2 / 3)
    assert reading(["b", "a", "a", "b"]).label == "b"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 3, 4)])
def test_half_blank_images_show_one_side(side, shape):
    images = torch.rand(shape)
    wide = half_blank(images, side, blank=0.5)
    left, right = wide[..., :4], wide[..., 4:]
    shown, empty = (left, right) if side == "left" else (right, left)
    assert torch.equal(shown.reshape(shape), images)
    assert bool((empty == 0.5).all())


@pytest.mark.parametrize("wrong", [("abc",), ([],), (3,)])
def test_labels_must_be_a_list_with_entries(wrong):
    with pytest.raises(geh.GEHError, match="labels"):
        reading(*wrong)


@pytest.mark.parametrize("wrong", [(torch.zeros(2, 2), "left"), (torch.zeros(1, 2, 2), "top"), ([1], "left")])
def test_half_blank_rejects_inputs_that_are_not_images(wrong):
    with pytest.raises(geh.GEHError, match=r"images|side"):
        half_blank(*wrong)
