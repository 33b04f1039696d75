"""The names, arguments and defaults that users' code relies on. A change here breaks that code.

A signature lists the first arguments in their order, and some of those that are given by name. Functions may take
further arguments by name.
"""

import inspect

import numpy as np
import pytest
import torch
from synthetic_results import evidence_result, random_result

import geh_explain as geh

SIGNATURES = {
    "GEHExplainer": "model, layer=None, *, units=None, output='raw', posterior=None, smooth='auto', engine='auto'",
    "GEHExplainer.explain": "inputs, target=None, additional_forward_args=None, *, groups='auto', draws=100, "
    "names=None, scale=None, batch_size=None, seed=0, progress=True, evidence=None, unit=None, pairs=None, rows=None",
    "GEHExplainer.explain_row": "x_row, target=None, additional_forward_args=None, *, baseline='mean'",
    "GEHExplainer.choose_groups": "inputs, target=None, additional_forward_args=None, *, max_groups=60",
    "GEHExplainer.screen": "inputs, target=None, additional_forward_args=None, *, keep=50",
    "GEHExplainer.search": "inputs, target=None, additional_forward_args=None, *, top=100",
    "GEHExplainer.test": "result, inputs, y, additional_forward_args=None",
    "GEHExplainer.interpret": "result, candidates, pairs=2",
    "GroupChoice.plot": "*, ax=None",
    "Scores.interval": "level=0.95, kind='gaussian'",
    "Interactions.table": "measure=None, level=0.95, fdr=None, *, rule=None, unit=None",
    "Interactions.top": "pairs=10, measure=None",
    "Interactions.regions": "i, j, level=0.95",
    "Interactions.save": "path",
    "Interactions.load": "path",
    "Interactions.report": "path",
    "Interactions.compare": "other, measure=None, level=0.95, fdr=0.05",
    "Interactions.triples": "pairs=5",
    "Interactions.share": "pairs=5",
    "Plots.heatmap": "measure=None, *, ax=None",
    "Plots.intervals": "measure=None, *, ax=None",
    "Plots.network": "measure=None, *, ax=None",
    "Plots.regions": "i, j, *, ax=None",
    "units.Neurons": "",
    "units.Channels": "dim=None",
    "units.Patches": "size",
    "units.Tokens": "",
    "units.FeatureGroups": "groups",
    "units.Subset": "indices, of=None",
    "units.Categorical": "categories",
    "posterior.MCDropout": "modules=None",
    "posterior.Ensemble": "models",
    "posterior.WeightSamples": "samples",
    "posterior.Stochastic": "",
    "posterior.PointEstimate": "",
    "posterior.Posterior.draws": "model, n, seed",
    "engines.Structured": "",
    "engines.Exact": "",
    "engines.Difference": "",
    "engines.Stein": "",
    "engines.Engine.start": "cut, limits",
    "inference.crossfit_test": "fit, X, y, folds=5",
    "inference.permutation_test": "fit, X, y, permutations=200, *, null='main'",
    "interpret.exemplars": "model, layer, units, candidates, k=9",
    "interpret.maximise": "model, layer, units, shape",
    "bnn.HybridNet": "features, hidden=(100, 100, 100)",
    "bnn.fit": "model, X, y",
}

COLUMNS = ["unit_i", "unit_j", "mean", "std", "low", "high"]


def parameters(signature):
    """Return the parameters of a signature other than ``self``, by name."""
    return {name: each for name, each in signature.parameters.items() if name != "self"}


def stated(text):
    """Return the parameters of a signature that is given as text."""
    return parameters(inspect.signature(eval(f"lambda {text}: None")))


def find(path):
    """Return what a path below the package names."""
    found = geh
    for name in path.split("."):
        found = getattr(found, name)
    return found


def by_position(given):
    return [name for name, each in given.items() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize("path", SIGNATURES)
def test_arguments_have_the_names_order_and_defaults_that_users_rely_on(path):
    promised, actual = stated(SIGNATURES[path]), parameters(inspect.signature(find(path)))
    assert by_position(actual)[: len(by_position(promised))] == by_position(promised)
    assert {name: actual[name].default for name in promised} == {name: promised[name].default for name in promised}
    needed = {name for name, each in actual.items() if each.default is each.empty and each.kind is not each.VAR_KEYWORD}
    assert needed <= set(promised)


def test_every_function_that_is_promised_is_in_the_reference():
    for path in SIGNATURES:
        head, _, rest = path.partition(".")
        assert head in geh.__all__
        if inspect.ismodule(find(head)):
            assert rest.split(".")[0] in find(head).__all__


def test_a_result_has_its_scores_names_and_groups():
    result = random_result(4, draws=30)
    for scores in (result.geh, result.aeh, result.eah):
        assert scores.mean.shape == scores.std.shape == (4, 4)
        assert scores.draws.shape == (30, 6)
        np.testing.assert_array_equal(scores.mean, scores.mean.T)
        assert not np.diag(scores.mean).any()
        low, high = scores.interval(level=0.9, kind="quantile")
        assert (low <= high).all()
    assert len(result.names) == 4
    assert len(result.labels) == 20
    assert isinstance(result.settings, dict)


def test_tables_have_the_columns_of_their_rule():
    result = random_result()
    tested = evidence_result(result)
    assert list(result.table()) == [*COLUMNS, "stable"]
    assert list(result.table(rule="sign")) == [*COLUMNS, "stable"]
    assert list(result.table(rule="interval")) == [*COLUMNS, "p_value", "significant"]
    decided = ["supported", "slope", "slope_se", "p_value", "significant"]
    assert [name for name in tested.table() if name not in COLUMNS] == decided
    assert list(tested.table(rule="evidence")) == list(tested.table())
    assert set(result.table(unit="unit 1")[["unit_i", "unit_j"]].isin(["unit 1"]).any(axis=1)) == {True}
    assert list(result.regions(0, 1))[:5] == ["size", "mean", "std", "low", "high"]


def test_a_prediction_and_a_choice_of_groups_have_their_parts():
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    x = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    local = explainer.explain_row(x[0], data=x, progress=False)
    total = local.reference + local.main["mean"].sum() + local.pairs["mean"].sum() + local.remainder
    assert total == pytest.approx(local.prediction, abs=1e-6)
    choice = explainer.choose_groups(x, max_groups=4, progress=False)
    assert 1 <= choice.chosen <= len(choice.delta)
    assert isinstance(explainer.screen(x, keep=2, progress=False).indices, list | tuple | np.ndarray)


@pytest.mark.parametrize("builtin", [ValueError, TypeError, RuntimeError])
def test_errors_are_also_those_of_python(builtin):
    kinds = [getattr(geh.errors, name) for name in geh.errors.__all__]
    assert any(issubclass(kind, geh.GEHError) and issubclass(kind, builtin) for kind in kinds)


def test_wrong_use_is_a_geh_error():
    with pytest.raises(geh.GEHError, match="draws=0"):
        geh.GEHExplainer(torch.nn.Linear(2, 1)).explain(torch.rand(4, 2), draws=0)
    assert issubclass(geh.GEHWarning, Warning)
