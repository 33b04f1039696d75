"""Every function of torch inside a network: the chosen engine gives the Hessians of double backward."""

import warnings
from collections import Counter

import pytest
import torch
from torch_functions import GatedNetwork, gated_points, row_functions

import geh_explain as geh

#: Largest difference from double backward, relative to the largest interaction.
TOLERANCE = {torch.float32: 2e-3, torch.float64: 1e-7}


def explain(network, x, engine, layer):
    explainer = geh.GEHExplainer(network, layer, engine=engine, smooth=None, posterior=geh.posterior.PointEstimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return explainer.explain(x, groups=2, progress=False)


def compare(function, gated, layer, dtype):
    """Return the engine that was chosen, or "error" where double backward has no answer; fail on a mismatch."""
    network, x = GatedNetwork(function, gated).to(dtype), gated_points(dtype)
    try:
        expected = explain(network, x, "exact", layer)
    except geh.GEHError:
        return "error"
    found = explain(network, x, "auto", layer)
    for measure in ("geh", "eah"):
        reference = expected.scores(measure).pair_mean
        difference = abs(found.scores(measure).pair_mean - reference).max()
        assert difference <= TOLERANCE[dtype] * max(reference.max(), 1e-6), found.settings["engine_reason"]
    return found.settings["engine"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_function_of_torch_gives_another_hessian_than_double_backward(dtype):
    functions = row_functions()
    engines, mismatches = Counter(), []
    for name, function in functions.items():
        for gated in (False, True):
            for layer in (None, "first"):
                try:
                    engines[compare(function, gated, layer, dtype)] += 1
                except AssertionError as error:
                    mismatches.append((name, gated, layer, str(error)[:80]))
    assert len({name.split("(")[0] for name in functions}) >= 130
    assert engines["structured"] > 300
    assert not mismatches
