"""Groups of a result in words, and typical points of groups of images."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from explaining import explain_point, point_explainer, random_points, uniform_points
from networks import mlp
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.results.group_files import parse_group_info

BOXES = ["age < 0.5 (100 %)", "age >= 0.5 and bmi < 0.3 (100 %)", "age >= 0.5 and bmi >= 0.3 (100 %)"]


def boxes(x: Tensor) -> Tensor:
    """Return three groups, which are boxes of the first two columns."""
    return torch.where(x[:, 0] < 0.5, 0, torch.where(x[:, 1] < 0.3, 1, 2))


def product(x: Tensor) -> Tensor:
    return x.prod(1) + (x**2).sum(1)


def test_groups_of_a_table_are_described_by_its_columns_at_inputs_and_layers() -> None:
    x = uniform_points(300, 3)
    frame = pd.DataFrame(x.numpy(), columns=["age", "bmi", "dose"])
    at_inputs = explain_point(product, frame, groups=boxes(x))
    assert at_inputs.group_descriptions == BOXES
    regions = at_inputs.regions("age", "bmi")
    assert regions["description"].tolist() == BOXES
    network = mlp(3, 8, 8, 1)
    at_layer = explain_point(network, frame, groups=boxes(x), layer="0", output=torch.tanh)
    assert at_layer.group_descriptions == BOXES
    named = explain_point(
        product, x, groups=[["low", "mid", "high"][group] for group in boxes(x)], names=["u", "v", "w"]
    )
    assert named.group_names == ["high", "low", "mid"]
    assert named.group_descriptions == [BOXES[place].replace("age", "u").replace("bmi", "v") for place in (2, 0, 1)]


def test_columns_without_names_are_numbered_over_all_inputs() -> None:
    x, y = uniform_points(200, 2), uniform_points(200, 1, seed=1)
    model = lambda x, y: x.prod(1) * y[:, 0] + (x**2).sum(1)  # noqa: E731
    result = explain_point(model, (x, y), groups=(y[:, 0] >= 0.25).long())
    assert result.group_descriptions == ["x2 < 0.25 (100 %)", "x2 >= 0.25 (100 %)"]
    assert explain_point(product, x, groups=1).group_descriptions == ["all points"]
    units = geh.units.FeatureGroups({"both": [0, 1], "last": [2]})
    grouped = explain_point(product, torch.cat([x, y], dim=1), groups=(y[:, 0] >= 0.25).long(), units=units)
    assert grouped.group_descriptions == result.group_descriptions


def test_large_and_streamed_tables_are_described_from_a_sample() -> None:
    x = uniform_points(4000, 2, dtype=torch.float)
    labels = boxes(x)
    expected = explain_point(product, x, groups=labels).group_descriptions
    assert expected == [text.replace("age", "x0").replace("bmi", "x1") for text in BOXES]
    loader = DataLoader(TensorDataset(x), batch_size=500)
    assert explain_point(product, loader, groups=labels, batch_size=100).group_descriptions == expected


def test_a_loader_that_fails_after_the_draws_leaves_groups_without_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = uniform_points(60, 2)
    passes = 0

    class Failing(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            nonlocal passes
            passes += index == 0
            if passes > allowed:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    allowed = 1_000
    loader = DataLoader(Failing(x), batch_size=20)
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0.0)  # rows are read anew on every pass
    assert explain_point(product, loader, groups=boxes(x)).group_descriptions is not None
    allowed, passes = passes - 1, 0
    result = explain_point(product, loader, groups=boxes(x))
    assert result.group_descriptions is None
    assert result.geh.mean.shape == (2, 2)


def test_groups_that_kmeans_finds_have_rules_that_mostly_hold() -> None:
    x = torch.cat([random_points(80, 3) * 0.1 + shift for shift in torch.eye(3, dtype=torch.double)])
    result = explain_point(product, x, groups=3)
    assert sorted(text.split(" >=")[0] for text in result.group_descriptions or []) == ["x0", "x1", "x2"]
    assert all(text.endswith("(100 %)") for text in result.group_descriptions or [])


def test_token_ids_are_no_table() -> None:
    network = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    tokens = torch.randint(9, (40, 3), generator=torch.Generator().manual_seed(0))
    result = explain_point(network, tokens, groups=2, layer="2", output=torch.tanh)
    assert result.group_descriptions is None
    assert "description" not in result.regions(0, 1)


def images(rows: int = 40) -> Tensor:
    """Return images (rows, 1, 4, 4): dark ones first, then bright ones, the last of each half the most typical."""
    bright = (torch.arange(rows) >= rows // 2).double()[:, None, None, None]
    return bright + random_points(rows, 1, 4, 4) * torch.linspace(0.5, 0, rows // 2).repeat(2)[:, None, None, None]


@pytest.mark.parametrize("layer", [None, "0"])
def test_groups_of_images_have_the_points_nearest_to_their_centres(layer: str | None) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1)).double()
    x = images()
    result = explain_point(network, x, groups=2, layer=layer, output=torch.tanh)
    exemplars = result.group_exemplars
    assert exemplars is not None
    assert result.group_descriptions is None
    assert exemplars.shape == (2, 5)
    activations = x if layer is None else network[0](x)
    positions = (activations.flatten(1) if layer is None else activations.mean(dim=(2, 3))).detach().numpy()
    for group, found in enumerate(exemplars):
        members = np.flatnonzero(result.labels == group)
        distance = ((positions[members] - positions[members].mean(axis=0)) ** 2).sum(axis=1)
        assert found.tolist() == members[np.argsort(distance)[:5]].tolist()


def test_descriptions_and_exemplars_survive_saving_and_evidence(tmp_path: Path) -> None:
    x = uniform_points(60, 3)
    table = explain_point(product, x, groups=boxes(x))
    loaded = geh.Interactions.load(table.save(tmp_path / "table.npz"))
    assert loaded.group_descriptions == table.group_descriptions
    pd.testing.assert_frame_equal(loaded.regions(0, 1), table.regions(0, 1))
    assert loaded.with_evidence(None).group_descriptions == table.group_descriptions
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    pictures = explain_point(network, images(), groups=2)
    again = geh.Interactions.load(pictures.save(tmp_path / "images.npz"))
    np.testing.assert_array_equal(again.group_exemplars, pictures.group_exemplars)


@pytest.mark.parametrize(
    "forged",
    [
        [],
        {"descriptions": [["a < 1", 1.0]]},
        {"descriptions": [["a < 1", 1.0], ["a >= 1", 2.0]]},
        {"descriptions": [["a < 1", 1.0], ["\ud800", 1.0]]},
        {"descriptions": [["a < 1", True], ["b", 1.0]]},
        {"exemplars": [[0], [9]]},
        {"exemplars": [[0], [0.5]]},
        {"exemplars": [[0], [0, 1]]},
        {"exemplars": [[], []]},
        {"exemplars": 3},
    ],
)
def test_forged_descriptions_are_refused(forged: Any) -> None:
    with pytest.raises(ValueError, match=r"its|surrogates"):
        parse_group_info(json.loads(json.dumps(forged)), groups=2, points=9)


def test_the_plot_and_the_page_show_descriptions(tmp_path: Path) -> None:
    x = uniform_points(60, 3)
    result = point_explainer(product).explain(x, groups=boxes(x), names=["age", "bmi", "dose"], progress=False)
    labels = [label.get_text() for label in result.plot.regions(0, 1).get_yticklabels()]
    assert labels == [
        f"{group} ({size})\n{text}" for group, (size, text) in enumerate(zip(result.sizes, BOXES, strict=True))
    ]
    plt.close("all")
    page = result.report(tmp_path / "page.html").read_text()
    shown = [[words, int(agreement)] for words, agreement in (re.findall(r"(.*) \((\d+) %\)", box)[0] for box in BOXES)]
    expected = json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c").replace(">=", "\\u2265")
    assert expected in page


def test_columns_of_text_and_dates_are_described_by_their_values() -> None:
    """Of an estimator's table and with all ways to pass its rows on: several targets, rows of weight 0."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=80),
            "bmi": rng.normal(size=80),
            "city": rng.choice(["Bonn", "Oslo", "Rome"], 80),
            "seen": pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(80), "D"),
        }
    )

    def both(frame: pd.DataFrame) -> Any:
        products = frame["age"].to_numpy() * frame["bmi"].to_numpy()
        return np.stack([products, 2 * products], axis=1)

    options: dict[str, Any] = {"engine": "difference", "units": geh.units.Subset(["age", "bmi"])}
    weight = np.arange(80) != 7
    for extra in ({"target": 0}, {"target": "all"}, {"target": 1, "sample_weight": weight.astype(float)}):
        results = [
            point_explainer(both, **options).explain(frame, groups=groups, progress=False, **extra)
            for groups in (frame["city"], frame["seen"] < "2024-03-21")
        ]
        city, seen = (result[0] if extra["target"] == "all" else result for result in results)
        assert city.group_descriptions == [f"city = {name} (100 %)" for name in ("Bonn", "Oslo", "Rome")]
        assert seen.group_descriptions == ["seen >= 2024-03-21 (100 %)", "seen < 2024-03-21 (100 %)"]
