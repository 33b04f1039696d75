"""Labels of more points than a million: their type, their counts, and samples of them, in blocks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points
from networks import mlp

import geh_explain as geh
from geh_explain.groups.group_info import stratified_sample
from geh_explain.groups.grouping import count_labels, label_type


@pytest.fixture
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten points are many."""
    for module in ("grouping", "group_info"):
        monkeypatch.setattr(f"geh_explain.groups.{module}.COMPACT_POINTS", 10)


def test_labels_of_many_points_take_few_bytes() -> None:
    assert label_type(2**20, 60) == np.int64
    assert [label_type(2**20 + 1, groups) for groups in (1, 127, 128, 129, 32768, 32769)] == [
        np.dtype(name) for name in ("int8", "int8", "int8", "int16", "int16", "int32")
    ]


@pytest.mark.usefixtures("_many")
def test_points_are_counted_in_blocks() -> None:
    labels = np.random.default_rng(0).integers(-1, 3, 95).astype(np.int8)
    assert count_labels(labels, 4).tolist() == [int((labels == group).sum()) for group in range(4)]


@pytest.mark.usefixtures("_many")
def test_a_sample_of_many_points_has_points_of_each_group_in_order() -> None:
    labels = np.repeat(np.array([0, 1, 2, 0], dtype=np.int8), [500, 30, 2, 468])
    indices, weights = stratified_sample(labels, 3, rows=100, least=5)
    assert (np.diff(indices) > 0).all()
    counts = np.bincount(labels[indices], minlength=3)
    assert counts.tolist() == [96, 5, 2]
    totals = np.bincount(labels[indices], weights, 3)
    np.testing.assert_allclose(totals, [968, 30, 2], rtol=1e-12)
    # Each point of a group may be in the sample: it reaches into both parts of group 0.
    assert {indices[labels[indices] == 0].min() < 500, indices[labels[indices] == 0].max() >= 532} == {True}


def explained(**options: object) -> geh.Interactions:
    torch.manual_seed(0)
    return explain_point(mlp(3, 8, 1, gain=2.0), random_points(60, 3), **options)


@pytest.mark.parametrize(
    "options", [{"groups": 3}, {"groups": "auto"}, {"groups": 1}, {"engine": "stein", "groups": 2}]
)
def test_results_of_many_points_are_those_of_few(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few = explained(**options)
    with monkeypatch.context() as patch:
        patch.setattr("geh_explain.groups.grouping.COMPACT_POINTS", 10)
        many = explained(**options)
    np.testing.assert_array_equal(many.labels, few.labels)
    assert (few.labels.dtype, many.sizes.tolist(), many.n_points) == (np.int64, few.sizes.tolist(), 60)
    for measure in ("geh", "aeh", "eah"):
        np.testing.assert_array_equal(many.scores(measure).draws, few.scores(measure).draws)
    again = geh.Interactions.load(many.save(tmp_path / "many.npz"))
    np.testing.assert_array_equal(again.labels, many.labels)
    assert again.labels.dtype == many.labels.dtype
