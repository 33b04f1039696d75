"""Patches of images, tokens and heads of sequences: interactions along the sums of their directions."""

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points
from torch import Tensor, nn

import geh_explain as geh


def along(f, x: Tensor, directions: Tensor) -> np.ndarray:
    """The mean of B^T H B, with the directions (D, *shape) written out."""
    flat = directions.flatten(1)
    hessian = sum(
        torch.autograd.functional.hessian(lambda u: f(u[None])[0], row).reshape(flat.shape[1], -1) for row in x
    )
    projected = np.abs((flat @ hessian @ flat.T).numpy() / len(x))
    return projected * ~np.eye(len(flat), dtype=bool)


def small_cnn(channels: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(channels, 3, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(1), nn.Flatten(0)).double()


@pytest.mark.parametrize("size", [2, 3, (2, 4)])
def test_the_pixels_of_a_patch_shift_together_also_at_the_edges(size):
    model, x = small_cnn(), random_points(3, 2, 5, 6)
    model(x)
    height, width = (size, size) if isinstance(size, int) else size
    boxes = [(i, j) for i in range(0, 5, height) for j in range(0, 6, width)]
    directions = torch.zeros(len(boxes), 2, 5, 6).double()
    for box, (i, j) in enumerate(boxes):
        directions[box, :, i : i + height, j : j + width] = 1
    result = explain_point(model, x, units=geh.units.Patches(size))
    assert result.geh.mean == pytest.approx(along(model, x, directions), abs=1e-12)
    assert result.names[:2] == ["x[0,0]", "x[0,1]"]


def test_patches_of_channels_last_images_are_the_same():
    model, x = small_cnn(), random_points(3, 2, 4, 4)
    model(x)
    last = explain_point(
        lambda x: model(x.permute(0, 3, 1, 2)), x.permute(0, 2, 3, 1), units=geh.units.Patches(2, channels_last=True)
    )
    assert last.geh.mean == pytest.approx(explain_point(model, x, units=geh.units.Patches(2)).geh.mean)


def test_tokens_and_heads_are_sums_of_directions():
    torch.manual_seed(0)
    weight = torch.randn(8, 8).double()

    def model(x: Tensor) -> Tensor:
        return (x @ weight).tanh().mean(1).prod(1)

    x = random_points(3, 4, 8)
    tokens, heads = torch.zeros(4, 4, 8).double(), torch.zeros(2, 4, 8).double()
    for token in range(4):
        tokens[token, token] = 1
    for head in range(2):
        heads[head, :, 4 * head : 4 * head + 4] = 1
    assert explain_point(model, x, units=geh.units.Tokens()).geh.mean == pytest.approx(
        along(model, x, tokens), abs=1e-12
    )
    assert explain_point(model, x, units=geh.units.Heads(2)).geh.mean == pytest.approx(
        along(model, x, heads), abs=1e-12
    )


def test_units_that_do_not_fit_the_layer_are_refused():
    for units, words in (
        (geh.units.Patches(2), "no image"),
        (geh.units.Tokens(), "sequence"),
        (geh.units.Heads(2), "equal heads"),
    ):
        with pytest.raises(geh.GEHError, match=words):
            explain_point(lambda x: x.prod(1), random_points(4, 3), units=units)


def test_a_scale_of_patches_is_the_spread_of_their_means():
    x = random_points(20, 1, 4, 4) * torch.arange(1, 5).double()
    plain, scaled = (
        explain_point(lambda x: x.sum((1, 2, 3)) ** 2, x, units=geh.units.Patches(2), scale=scale).geh.mean
        for scale in (None, "std")
    )
    std = x.reshape(20, 2, 2, 2, 2).mean((2, 4)).reshape(20, 4).std(0, correction=0).numpy()
    assert scaled == pytest.approx(plain * np.outer(std, std))
