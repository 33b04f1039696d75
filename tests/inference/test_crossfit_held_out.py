"""Cross-fitting with the held-out test itself: names of units, files, options, small folds."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.inference.crossfit import _to_evidence
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


class Product(nn.Module):
    """Multiplies two inputs by a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.weight * x[:, 0] * x[:, 1] + x[:, 2]


def weights(value):
    return geh.posterior.WeightSamples([{"weight": torch.tensor(value)}])


def test_a_checkpoint_refuses_another_posterior_of_the_same_description(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (400, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * generator.normal(size=400)

    def run(value):
        options = {"posterior": weights(value)}
        fit = Product
        return geh.inference.crossfit_test(
            lambda X, y: fit(), X, y, folds=2, explainer=options, checkpoint=tmp_path, progress=False
        )

    first = run(1.0)
    assert run(1.0).slope[0] == first.slope[0]
    with pytest.raises(geh.GEHError, match=r"belongs to another test: explainer \(posterior=WeightSamples\(1\) "):
        run(0.5)


LONG = torch.arange(2000.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda value: (LONG.where(LONG != 1000, value),),
        lambda value: {"a": [LONG.where(LONG != 1000, value)]},
        weights,
        lambda value: geh.posterior.Ensemble(
            [nn.Linear(2, 1).requires_grad_(False).apply(lambda m: m.weight.fill_(value))]
        ),
        lambda value: geh.posterior.LastLayerLaplace(torch.full((9, 2), value), torch.ones(9)),
        lambda value: geh.posterior.LastLayerLaplace(pd.DataFrame({"a": [value] * 9}), torch.ones(9)),
    ],
)
def test_options_with_the_same_text_and_other_contents_are_told_apart(make):
    torch.manual_seed(0)
    first = describe_options({"option": make(1.0)})
    torch.manual_seed(0)
    assert describe_options({"option": make(1.0)}) == first
    torch.manual_seed(0)
    assert describe_options({"option": make(2.0)}) != first


@pytest.mark.parametrize("names", [None, [], ["a", "b"], ["a", "b", "c", "d"], "abc", {"a": 1}])
def test_records_with_impossible_names_are_refused(names):
    numbers = {"slope": [0.5] * 3, "slope_se": [0.1] * 3, "p_value": [0.1] * 3}
    record = {"number": 1, **numbers, "n_rows": 50, "link": "identity"}
    assert _to_evidence({**record, "names": ["a", "b", "c"]}).n_rows == 50
    with pytest.raises((ValueError, TypeError)):
        _to_evidence(json.loads(json.dumps({**record, "names": names})))


def test_folds_that_are_too_small_are_refused_before_any_fit():
    calls = []
    with pytest.raises(geh.GEHError, match="too few to test pairs"):
        geh.inference.crossfit_test(lambda X, y: calls.append(1), np.zeros((100, 3)), np.arange(100.0), folds=10)
    assert not calls
