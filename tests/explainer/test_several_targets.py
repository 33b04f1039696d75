"""Several targets of one call: the results of separate calls in the same groups, without repeating what they share."""

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import explain_draws, explain_point, point_explainer, random_points
from networks import cnn, mlp
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.errors import GEHTypeError, GEHValueError

MEASURES = ("aeh", "geh", "eah")


def classifier(inputs=4, classes=3, **options):
    return mlp(inputs, 10, 8, classes, dropout=0.2, gain=2.0, **options)


def assert_same(result, alone, exact=True):
    for measure in MEASURES:
        found, expected = (each.scores(measure).draws for each in (result, alone))
        np.testing.assert_allclose(found, expected, rtol=0 if exact else 1e-9, atol=0)
    np.testing.assert_array_equal(result.labels, alone.labels)
    np.testing.assert_array_equal(result.main.draws, alone.main.draws)
    np.testing.assert_array_equal(result.point_errors, alone.point_errors)
    assert result.table().equals(alone.table())
    own, expected = dict(result.settings), dict(alone.settings)
    assert own == expected


CASES = {
    "structured": ({}, {"draws": 6}),
    "structured, probabilities": ({"output": "probability"}, {"draws": 6, "scale": "std"}),
    "exact": ({"engine": "exact"}, {"draws": 5, "groups": 1}),
    "difference": ({"engine": "difference"}, {"draws": 3}),
    "Stein's noise": ({"engine": "stein"}, {"draws": 3}),
    "a hidden layer": ({"layer": "1", "units": geh.units.Subset(range(5))}, {"draws": 6}),
    "one draw": ({"posterior": geh.posterior.PointEstimate()}, {}),
    "some pairs": ({}, {"draws": 3, "pairs": [(0, 1), (3, 2)]}),
    "case weights": ({}, {"draws": 4, "sample_weight": np.arange(40) % 4}),
    "clusters": ({}, {"draws": 4, "clusters": np.arange(40) % 11}),
    "small batches": ({}, {"draws": 4, "batch_size": 7}),
    "labels": ({}, {"draws": 3, "groups": np.arange(40) % 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_all_targets_at_once_are_those_of_separate_calls(case):
    made, asked = CASES[case]
    model, x = classifier(), random_points(40, 4)
    asked = {"groups": 2, "progress": False, **asked}
    explainer = geh.GEHExplainer(model, **made)
    results = explainer.explain(x, target="all", **asked)
    assert list(results) == [0, 1, 2]
    for target in results:
        assert_same(results[target], explainer.explain(x, target=target, **asked))


def test_narrow_layers_are_pulled_back_for_each_target():
    model, x = classifier(30, 4), random_points(40, 30)
    model[0] = nn.Linear(30, 10).double()
    results = point_explainer(model, engine="structured").explain(
        x, target="all", groups=2, eah_points=9, progress=False
    )
    assert results[0].record.eah_points == 9
    for target, result in results.items():
        alone = explain_point(model, x, target, groups=2, eah_points=9, engine="structured")
        with pytest.warns(geh.GEHWarning, match="measured on 9"):
            assert_same(result, alone)


@pytest.mark.filterwarnings("ignore:smoothing the kinks")
@pytest.mark.filterwarnings("ignore:target [0-9, ]+. smoothing the kinks")
def test_smoothing_is_measured_for_each_target():
    model, x = classifier(activation=nn.ReLU), random_points(40, 4)
    explainer = geh.GEHExplainer(model)
    results = explainer.explain(x, target="all", groups=1, draws=3, progress=False)
    for target, result in results.items():
        assert_same(result, explainer.explain(x, target=target, groups=1, draws=3, progress=False))
    assert results[0].settings["smoothed"]["mean_change"] != results[1].settings["smoothed"]["mean_change"]


def test_members_of_an_ensemble_are_entered_for_all_targets():
    models = [classifier(seed=seed) for seed in range(3)]
    posterior = geh.posterior.Ensemble(models)
    explainer, x = geh.GEHExplainer(models[0], posterior=posterior), random_points(30, 4)
    results = explainer.explain(x, targets=[2, 0], groups=2, progress=False)
    assert list(results) == [2, 0]
    for target, result in results.items():
        assert_same(result, explainer.explain(x, target=target, groups=2, progress=False))


def test_an_image_network_and_a_loader():
    model, x = cnn(), random_points(12, 1, 6, 6, dtype=torch.float)
    explainer = point_explainer(model, "2", output="probability")
    loader = DataLoader(TensorDataset(x, torch.zeros(12)), 5)
    results = explainer.explain(loader, target="all", groups=2, progress=False)
    for target, result in results.items():
        assert_same(result, explainer.explain(x, target=target, groups=2, progress=False))


def test_one_number_of_groups_is_chosen_for_all_targets():
    """The first target needs no groups, and the second does: x0 decides on the sign of its interaction."""

    def model(x):
        return torch.stack([x[:, 0] * x[:, 1] + x[:, 2], x[:, 0] ** 2 * x[:, 1] + x[:, 2]], dim=1)

    results = point_explainer(model).explain(random_points(200, 3), target="all", progress=False)
    first, second = results.values()
    assert len(first.group_names) == len(second.group_names) > 1
    np.testing.assert_array_equal(first.labels, second.labels)
    np.testing.assert_array_equal(results.labels, first.labels)


def test_draws_of_the_posterior_are_entered_once():
    entered = []

    class Posterior(geh.posterior.PointEstimate):
        def draws(self, model, n, seed):
            for draw in super().draws(model, n, seed):
                entered.append(n)
                yield draw

    model = mlp(4, 6, 5)
    geh.GEHExplainer(model, posterior=Posterior()).explain(
        random_points(20, 4), target="all", groups=1, draws=1, progress=False
    )
    assert len(entered) == 1


def test_targets_have_names_or_several_indices():
    def model(x):
        values = torch.stack([x[:, 0] * x[:, 1], 2 * x[:, 1] * x[:, 2], 3 * x[:, 0] * x[:, 2], x[:, 0]], dim=1)
        return (values + x.sum(dim=1, keepdim=True)).reshape(-1, 2, 2)

    explainer, x = point_explainer(model), random_points(20, 3)
    named = explainer.explain(x, targets={"first": (0, 0), "last": (1, 0)}, groups=1, progress=False)
    assert list(named) == ["first", "last"]
    assert named["last"].geh.mean[0, 2] == pytest.approx(3)
    assert named["last"].settings["target"] == [1, 0]
    listed = explainer.explain(x, targets=[(0, 1), (1, 0)], groups=1, progress=False)
    assert listed[0, 1].geh.mean[1, 2] == pytest.approx(2)
    assert listed.table()["target"].tolist()[:2] == [(1, 0), (0, 1)]
    assert "(1, 0)" in repr(listed)


def test_the_table_has_all_targets_the_strongest_first():
    results = explain_all(random_points(40, 4))
    table = results.table()
    assert table.columns[:3].tolist() == ["target", "unit_i", "unit_j"]
    assert table["mean"].is_monotonic_decreasing
    for target, result in results.items():
        own = table[table["target"] == target].drop(columns="target").reset_index(drop=True)
        assert own.equals(result.table())
    assert results.top(4).equals(table.head(4))
    assert results.table("aeh", rule="interval")["mean"].max() == max(r.aeh.pair_mean.max() for r in results.values())


def explain_all(x, **options):
    return geh.GEHExplainer(classifier()).explain(
        x, target="all", **({"groups": 2, "draws": 20, "progress": False} | options)
    )


def test_a_mapping_of_results():
    results = explain_all(random_points(40, 4))
    assert len(results) == 3
    assert 2 in results
    assert 7 not in results
    assert [result.record.target for result in results.values()] == [0, 1, 2]
    with pytest.raises(KeyError, match="target 7 was not explained; there are 0, 1, 2"):
        results[7]
    with pytest.raises(GEHValueError):
        results["cat"]
    lines = repr(results).splitlines()
    assert lines[0].startswith(
        "Interactions of 3 targets between 4 units of the inputs: 6 pairs, 40 points in 2 groups"
    )
    assert len(lines) == 6
    strongest = results[1].table().iloc[0]
    assert results.summary().loc[1, "strongest pair"] == f"{strongest['unit_i']} × {strongest['unit_j']}"
    assert results.summary()["stable"].tolist() == [int(r.table()["stable"].sum()) for r in results.values()]


def test_evidence_tests_each_class_against_the_others():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(900, 3))

    def model(x):
        products = torch.stack([2 * x[:, 0] * x[:, 1], 0.2 * x[:, 0] * x[:, 2], 0.5 * x[:, 1] * x[:, 2]], dim=1)
        return products + x.sum(dim=1, keepdim=True)

    logits = np.stack([2 * x[:, 0] * x[:, 1], x[:, 1] + x[:, 2], 0 * x[:, 0]], axis=1)
    y = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    explainer, held = point_explainer(model), torch.as_tensor(x)
    results = explainer.explain(held, target="all", evidence=(held, y), groups=1, progress=False)
    for target, result in results.items():
        alone = explainer.explain(held, target=target, evidence=(held, y), groups=1, progress=False)
        np.testing.assert_array_equal(result.evidence.p_value, alone.evidence.p_value)
    assert results[0].table().iloc[0]["significant"]
    assert results.table()["supported"].is_monotonic_decreasing
    with pytest.raises(GEHValueError, match="y is of class 1 in no held-out rows"):
        explainer.explain(held[y != 1], target="all", evidence=(held[y != 1], y[y != 1]), groups=1, progress=False)


def test_warnings_of_all_targets_come_once_and_others_name_their_targets():
    def model(x):
        return torch.stack([x[:, 0] * x[:, 1], x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]], dim=1)

    with pytest.warns(geh.GEHWarning) as issued:
        results = point_explainer(model).explain(random_points(20, 2), target="all", groups=1, progress=False)
    messages = [str(warning.message) for warning in issued]
    assert [message.partition(": ")[0] for message in messages] == ["target 1, 2"]
    assert "additive" in messages[0]
    assert not results[0].record.warnings
    assert "additive" in results[1].record.warnings[0]


def test_triples_of_a_target_leave_out_clusters_of_rows_of_weight_0():
    model, x = classifier(), random_points(40, 4)
    options = {"groups": np.arange(40) % 2, "clusters": np.arange(40) // 4, "sample_weight": np.arange(40) % 3}
    explainer = point_explainer(model)
    results = explainer.explain(x, target="all", progress=False, **options)
    alone = explainer.explain(x, 2, progress=False, **options)
    pd.testing.assert_frame_equal(
        results[2].triples(pairs=1, progress=False), alone.triples(pairs=1, progress=False), rtol=1e-9
    )


@pytest.mark.parametrize("targets", [[0, 1], [1, 0]])
def test_kinks_without_a_smooth_form_are_found_for_each_target(targets):
    def model(x):
        ordered = x.sort(dim=1).values
        return torch.stack([torch.sin(x.sum(dim=1)), ordered[:, 1] * x[:, 2]], dim=1)

    with pytest.warns(geh.GEHWarning) as warned:
        point_explainer(model).explain(random_points(100, 4), targets=targets, groups=1, progress=False)
    (message,) = [str(warning.message) for warning in warned]
    assert message.startswith("target 1: smooth: kinks or jumps of sort")


def test_the_model_comes_back_unchanged():
    model = classifier().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    geh.GEHExplainer(model).explain(random_points(20, 4), target="all", groups=1, draws=2, progress=False)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


BAD = {
    "another word": ({"target": "every"}, GEHTypeError, "target='every' is unknown"),
    "both": ({"target": 1, "targets": [0]}, GEHValueError, "both given"),
    "a number": ({"targets": 3}, GEHTypeError, "targets=3"),
    "no target": ({"targets": []}, GEHValueError, "empty"),
    "a fraction": ({"targets": [0.5]}, GEHTypeError, "entry 0.5"),
    "twice": ({"targets": [1, 1]}, GEHValueError, "twice"),
    "twice, from the end": ({"targets": [2, -1]}, GEHValueError, "twice"),
    "no evidence": ({"target": "all", "evidence": 5}, GEHTypeError, "evidence is a int"),
    "out of range": ({"targets": [0, 9]}, GEHValueError, "target=9 is out of range"),
    "checkpoint": ({"target": "all", "checkpoint": "folder"}, GEHValueError, "folder belongs to one target"),
    "search": ({"target": "all", "rows": "auto"}, GEHValueError, "rows='auto'"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_meant_is_refused(name):
    options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        explain_draws(classifier(), random_points(20, 4), **options)


def test_one_output_is_not_all():
    for model, message in (
        (mlp(3, 5, 1), "leave target=None"),
        (lambda x: x[:, :, None] * x[:, None], r"targets=\[\(0, 0\)"),
    ):
        with pytest.raises(GEHValueError, match=message):
            explain_point(model, random_points(20, 3), "all")


def test_all_outputs_of_an_estimator_with_several_outputs():
    """A regressor has numbered outputs, of which each equals a call of its own; names of them are unknown."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.stack([x[:, 0] * x[:, 1], 3 * x[:, 0] * x[:, 1]], axis=1)
    model = make_pipeline(PolynomialFeatures(), LinearRegression()).fit(x, y)
    explainer = point_explainer(model)
    results = explainer.explain(x, target="all", groups=1, progress=False)
    assert {target: round(float(result.geh.mean[0, 1]), 6) for target, result in results.items()} == {0: 1.0, 1: 3.0}
    with pytest.raises(GEHTypeError, match=r"target='weight' is unknown; give an int.*or 'all'"):
        explainer.explain(x, target="weight", progress=False)
    with pytest.raises(GEHValueError, match=r"2 outputs per row.*target='all' in explain"):
        explainer.explain(x, progress=False)
