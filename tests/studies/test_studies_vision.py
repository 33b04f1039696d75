"""The study of vision networks: differences against a known function, one layer from start to end, and its page."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from studies.vision import differences, experiment, networks, page, summary


class Products(nn.Module):
    """A layer of three channels that copies the input, and c0 c1 + 3 c1 c2 of the channels' means."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Identity()

    def forward(self, images):
        c = self.layer(images).mean(dim=(2, 3))
        return c[:, 0] * c[:, 1] + 3 * c[:, 1] * c[:, 2] + c[:, 0] ** 3


def test_mixed_differences_are_those_of_a_known_function():
    net, images = Products(), torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    deviations = differences.channel_deviations(net, net.layer, images)
    np.testing.assert_allclose(deviations, images.mean(dim=(2, 3)).std(dim=0, correction=0))
    steps = 0.5 * deviations
    found = differences.mixed_differences(net, net.layer, images, None, np.arange(3), steps)
    np.testing.assert_allclose(found, [steps[0] * steps[1], 0, 3 * steps[1] * steps[2]], atol=1e-12)
    assert torch.equal(net(images), net(images))
    assert not net.layer._forward_hooks


def trained_here(monkeypatch):
    """A small network in place of those whose weights are in packages."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    ).eval()  # fmt: skip

    def images(count, seed):
        pixels = torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
        return networks.Images(pixels, np.arange(count) // 2)

    subject = networks.Subject("small", "noise", lambda: net, images, {"block 1": "1"})
    monkeypatch.setitem(networks.SUBJECTS, "small", subject)
    experiment._network.cache_clear()


def test_a_layer_is_compared_with_differences_and_checked(monkeypatch, tmp_path):
    trained_here(monkeypatch)
    size = experiment.Size(("small",), seeds=1, images=12, channels=4, screened=4, candidates=12)
    (task,) = experiment.tasks(size)
    record = experiment.run(task, tmp_path)
    assert record["r 1"] > 0.9
    assert 0.7 < record["scale 1"] < 1.3
    assert record["channels"] == 6
    assert record["ablation_ratio"] > 0
    assert (tmp_path / record["picture"]).stat().st_size > 5000
    table = summary.tabulate([record])
    text = page.build_page(table, [record], size)
    assert "small, block 1" in text
    assert f"{record['r 0.5']:.3f}" in text
    assert f"(../images/{record['picture']})" in text


@pytest.mark.parametrize(
    ("r", "scale", "word"), [(0.95, 1.1, "met"), (0.85, 1.0, "**missed**"), (0.95, 1.2, "**missed**")]
)
def test_the_worst_sample_decides_about_agreement(r, scale, word):
    row = {"network": "text", "layer": "block 4", "seed": 10, "r 0.5": 0.99, "scale 0.5": 1.0}
    row |= {"ablation_ratio": 2.0, "ablation_auc": 0.95}
    table = pd.DataFrame([row, {**row, "seed": 11, "r 0.5": r, "scale 0.5": scale}])
    first = next(page._verdicts(table))
    assert first[2] == word
    assert f"r ≥ {r:.2f}" in first[1]


def test_lines_of_text_are_reproducible_and_half_upside_down():
    first, second = networks.draw_text(40, 3), networks.draw_text(40, 3)
    assert torch.equal(first.pixels, second.pixels)
    assert first.pixels.shape == (40, 3, 48, 192)
    assert first.pixels.abs().max() <= 1
    assert not torch.equal(first.pixels, networks.draw_text(40, 4).pixels)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(networks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(networks.GEHRuntimeError, match=r"needs rapidocr_onnxruntime; pip install 'geh-explain\[study"):
        networks._folder_of("rapidocr_onnxruntime")
    with pytest.raises(networks.GEHRuntimeError, match="needs no_such_package"):
        networks._required("no_such_package.part")
