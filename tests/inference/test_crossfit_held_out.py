"""Cross-fitting with the held-out test itself: names of units, files, options, small folds."""

import numpy as np
import pytest

import geh_explain as geh
from geh_explain.inference.refits import describe_options


def test_units_have_the_names_of_the_explainer():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(900, 8))
    y = X[:, 5] * X[:, 7] + 0.3 * generator.normal(size=900)

    def fit(X, y):
        return lambda x: x[:, 5] * x[:, 7] + 0.1 * x[:, 3] * x[:, 5]

    options = {"posterior": geh.posterior.PointEstimate(), "units": geh.units.Subset([3, 5, 7])}
    test = geh.inference.crossfit_test(fit, X, y, folds=3, explainer=options, progress=False)
    assert test.names == ["x3", "x5", "x7"]
    assert test.table().iloc[0][["unit_i", "unit_j"]].tolist() == ["x5", "x7"]


def test_combined_evidence_of_pairs_without_interaction_is_kept_in_files(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(600, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2] + generator.normal(size=600)
    options = {"posterior": geh.posterior.PointEstimate()}

    def fit(X, y):
        return lambda x: x[:, 0] * x[:, 1] + x[:, 2]

    test = geh.inference.crossfit_test(fit, X, y, folds=2, explainer=options, progress=False)
    assert test.p_value[1:].tolist() == [1, 1]
    result = geh.GEHExplainer(fit(X, y), **options).explain(X, groups=1, progress=False).with_evidence(test.evidence)
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(loaded.evidence.p_value, test.p_value)


def test_combined_evidence_of_units_in_another_order_is_refused():
    fold = geh.Evidence([0.9, 0.1, 0.0], [0.2] * 3, [0.001, 0.4, 0.6], 50)
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=geh.posterior.PointEstimate())
    result = explainer.explain(
        np.random.default_rng(0).normal(size=(50, 3)), groups=1, names=list("abc"), progress=False
    )
    test = geh.inference.CrossfitTest([fold, fold], ["c", "a", "b"])
    with pytest.raises(geh.GEHError, match=r"units \['c', 'a', 'b'\], and this result about \['a', 'b', 'c'\]"):
        result.with_evidence(test.evidence)
    for names in (["a", "b", "c"], ["x0", "x1", "x2"]):
        same = geh.inference.CrossfitTest([fold, fold], names).evidence
        assert result.with_evidence(same).evidence is same


def test_functions_and_objects_among_the_options_are_described_without_addresses():
    def first(outputs):
        return outputs

    description = describe_options({"output": first, "object": object()})
    assert "0x" not in description
    assert "first" in description


def test_folds_that_are_too_small_are_refused_before_any_fit():
    calls = []
    with pytest.raises(geh.GEHError, match="too few to test pairs"):
        geh.inference.crossfit_test(lambda X, y: calls.append(1), np.zeros((100, 3)), np.arange(100.0), folds=10)
    assert not calls
