"""Several targets in one call, with categories: each target has the result of a call of its own."""

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import point_explainer, random_points
from torch import nn

import geh_explain as geh
from geh_explain.engines import Difference
from geh_explain.posterior import MCDropout, PointEstimate
from geh_explain.run.accumulate import DrawAccumulator
from geh_explain.units import Categorical

ROWS, CLASSES = 60, 3
UNITS = Categorical({"c": [0, 1, 2], "d": [3]})


def network(activation=nn.Tanh):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), activation(), nn.Dropout(0.2), nn.Linear(10, CLASSES)).double().eval()


def table():
    codes = torch.tensor([0, 0, 0, 1, 1, 2]).repeat(ROWS // 6)
    columns = torch.eye(3, dtype=torch.double)[codes], (torch.arange(ROWS) % 4 // 3)[:, None]
    return torch.cat([*columns, random_points(ROWS, 2)], dim=1)


def assert_same(ours, theirs):
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    for name in ("geh", "aeh", "eah"):
        np.testing.assert_allclose(ours.scores(name).pair_mean, theirs.scores(name).pair_mean, rtol=1e-8, atol=1e-10)
    pd.testing.assert_frame_equal(ours.table(), theirs.table(), atol=1e-9)
    pd.testing.assert_frame_equal(ours.main.table(), theirs.main.table(), atol=1e-9)
    for pair in [(0, 1), (0, 2), (1, 3)][: None if ours.pairs.complete else 2]:
        pd.testing.assert_frame_equal(ours.levels(*pair), theirs.levels(*pair), atol=1e-9)
        pd.testing.assert_frame_equal(ours.regions(*pair), theirs.regions(*pair), atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"engine": "exact", "sample_weight": np.arange(ROWS) % 5},
        {"engine": Difference(discrete=())},
        {"scale": "std", "clusters": np.arange(ROWS) // 4},
        {"output": "probability", "batch_size": 7},
        {"rows": ["c"]},
        {"activation": nn.ReLU},
    ],
)
def test_each_target_has_the_result_of_a_call_of_its_own(options):
    options = dict(options)
    model = network(options.pop("activation", nn.Tanh))
    of_explainer = {name: options.pop(name) for name in ("engine", "output") if name in options}
    explainer = geh.GEHExplainer(model, units=UNITS, posterior=MCDropout(), **of_explainer)
    options = {"draws": 3, "progress": False, "groups": np.arange(ROWS) % 3} | options
    results = explainer.explain(table(), target="all", **options)
    assert list(results) == list(range(CLASSES))
    for target, result in results.items():
        assert_same(result, explainer.explain(table(), target, **options))


def test_moments_of_targets_are_those_of_calls_of_their_own(monkeypatch):
    start = DrawAccumulator.__init__

    def without_room(self, *args):
        start(self, *args)
        self._max_bytes = 0

    monkeypatch.setattr(DrawAccumulator, "__init__", without_room)
    explainer = geh.GEHExplainer(network(), units=UNITS, posterior=MCDropout())
    options = {"draws": 3, "progress": False, "groups": np.arange(ROWS) % 3}
    results = explainer.explain(table(), targets=[2, 0], **options)
    assert not results[2].settings["draws_kept"]
    for target, result in results.items():
        assert_same(result, explainer.explain(table(), target, **options))


def test_a_chosen_number_of_groups_is_that_of_all_targets_together():
    explainer = geh.GEHExplainer(network(), units=UNITS, posterior=MCDropout())
    results = explainer.explain(table(), targets=[0, 1], draws=3, progress=False)
    for target, result in results.items():
        labels = [result.group_names[group] for group in result.labels]
        alone = explainer.explain(table(), target, draws=3, progress=False, groups=labels)
        np.testing.assert_allclose(result.geh.pair_mean, alone.geh.pair_mean, rtol=1e-8)


def test_categories_alone_have_several_targets():
    effects = torch.tensor(np.random.default_rng(0).normal(size=(3, 4, 2)))
    ids = torch.stack([torch.arange(ROWS) % 3, torch.arange(ROWS) // 3 % 4], dim=1)
    explainer = point_explainer(lambda ids: effects[ids[:, 0], ids[:, 1]], units=Categorical({"a": 0, "b": 1}))
    results = explainer.explain(ids, target="all", groups=1, progress=False)
    for target, result in results.items():
        alone = explainer.explain(ids, target, groups=1, progress=False)
        np.testing.assert_allclose(result.geh.mean, alone.geh.mean)
        pd.testing.assert_frame_equal(result.levels("a", "b"), alone.levels("a", "b"))
    assert results[0].geh.mean[0, 1] != pytest.approx(results[1].geh.mean[0, 1])


def test_outputs_at_other_levels_are_computed_once_for_all_targets():
    rows: list[int] = []

    def model(ids):
        rows.append(len(ids))
        return torch.sin(ids @ torch.arange(1.0, 2.0 * CLASSES + 1, dtype=torch.double).reshape(2, CLASSES))

    ids = torch.stack([torch.arange(ROWS) % 5, torch.arange(ROWS) // 5 % 4], dim=1).double()
    explainer = point_explainer(model, units=Categorical({"a": 0, "b": 1}))
    explainer.explain(ids, 0, groups=1, progress=False)
    alone = sum(rows)
    rows.clear()
    explainer.explain(ids, target="all", groups=1, progress=False)
    assert sum(rows) < 1.5 * alone


def test_names_of_levels_of_a_data_frame_are_kept(tmp_path):
    frame = pd.DataFrame({"age": np.linspace(0, 1, ROWS), "city": pd.Categorical(["Rome", "Bonn", "Oslo"] * 20)})

    class Net(nn.Module):
        def forward(self, x):
            slopes = torch.tensor([[1.0, 2.0], [4.0, 0.0], [0.0, 1.0]]).to(x)[x[:, 1].long()]
            return slopes * x[:, :1]

    explainer = geh.GEHExplainer(Net(), units=Categorical.detect(frame), posterior=PointEstimate())
    for options in ({}, {"sample_weight": np.arange(ROWS)}):
        results = explainer.explain(frame, target="all", groups=1, progress=False, **options)
        levels = results[0].levels("city", "age").set_index(["from_i", "to_i"])["mean"]
        np.testing.assert_allclose(
            levels[[("Bonn", "Oslo"), ("Bonn", "Rome"), ("Oslo", "Rome")]], [3, -1, -4], atol=1e-5
        )
    loaded = geh.Interactions.load(results[1].save(tmp_path / "result.npz"))
    pd.testing.assert_frame_equal(loaded.table(), results[1].table())
