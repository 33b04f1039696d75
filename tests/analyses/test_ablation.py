"""Check of a result by ablation: scores against the joint effects of switching units off, as Captum computes them."""

from functools import cache

import numpy as np
import pytest
import torch
from captum.attr import FeatureAblation
from explaining import point_explainer, random_points
from torch import nn

import geh_explain as geh
from geh_explain.scores.draws import Draws


@cache
def explained_points():
    """Return the points that are explained (80, 5)."""
    return random_points(80, 5)


@cache
def held_out():
    """Return other points (80, 5), on which units are switched off."""
    return random_points(80, 5, seed=1)


WEIGHTS = {(0, 1): 4.0, (1, 2): -2.0, (2, 3): 1.0, (3, 4): 0.5}


def products(x):
    return sum(weight * x[:, i] * x[:, j] for (i, j), weight in WEIGHTS.items()) + x.sum(dim=1)


def test_products_are_seen_as_what_they_are():
    explainer = point_explainer(products)
    result = explainer.explain(explained_points(), groups=2, progress=False)
    check = explainer.check(result, held_out(), baseline=0, progress=False)
    assert len(check.pairs) == 10
    # Of w x_i x_j the joint effect of switching both off is w x_i x_j itself.
    for (i, j), predicted, observed in zip(check.pairs, check.predicted, check.observed, strict=True):
        a, b = int(i[1]), int(j[1])
        wanted = float((WEIGHTS.get((a, b), 0.0) * held_out()[:, a] * held_out()[:, b]).abs().mean())
        assert observed == pytest.approx(wanted, abs=1e-9)
        assert predicted == pytest.approx(wanted, abs=1e-9)
    assert check.correlation == pytest.approx(1)
    assert check.low <= check.correlation + 1e-9
    table = check.table()
    assert (table["unit_i"][0], table["unit_j"][0]) == ("x0", "x1")


def test_scores_that_are_wrong_are_found_out():
    explainer = point_explainer(products)
    result = explainer.explain(explained_points(), groups=2, progress=False)
    rng = np.random.default_rng(0)
    signed = result.signed[:, :, rng.permutation(10)]
    wrong = geh.Interactions(
        Draws(signed, np.abs(signed).mean(1)), result.labels, result.names, result.group_names, result.record
    )
    right, found = (explainer.check(each, held_out(), progress=False) for each in (result, wrong))
    assert right.low > found.high
    assert found.correlation < 0.5


def test_switching_off_is_what_captum_ablates():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    explainer = point_explainer(net)
    result = explainer.explain(explained_points(), groups=2, progress=False)
    check = explainer.check(result, held_out(), baseline=0, progress=False)
    ablation = FeatureAblation(net)
    alone = ablation.attribute(held_out(), baselines=0)
    for (i, j), observed in zip(check.pairs, check.observed, strict=True):
        a, b = int(i[1]), int(j[1])
        mask = torch.zeros(1, 5, dtype=torch.long)
        mask[0, [a, b]] = 1
        both = ablation.attribute(held_out(), baselines=0, feature_mask=mask)[:, a]
        joint = alone[:, a] + alone[:, b] - both
        assert observed == pytest.approx(float(joint.abs().mean()), rel=1e-9)


def test_hidden_units_are_switched_off_in_their_layer():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    explainer = point_explainer(net, "1")
    result = explainer.explain(explained_points(), groups=2, progress=False)
    check = explainer.check(result, held_out(), baseline=[0.1, 0.2, 0.3, 0.4], progress=False)
    hidden = net[:2](held_out()).detach()

    @torch.no_grad()
    def without(*units):
        changed = hidden.clone()
        for unit in units:
            changed[:, unit] = 0.1 * (unit + 1)
        return net[2:](changed)[:, 0]

    joint = (without() - without(0) - without(3) + without(0, 3)).abs().mean()
    assert check.pairs[2] == (result.names[0], result.names[3])
    assert check.observed[2] == pytest.approx(float(joint), rel=1e-9)
    again = explainer.check(result, held_out(), baseline=[0.1, 0.2, 0.3, 0.4], batch_size=7, progress=False)
    np.testing.assert_allclose(again.observed, check.observed)
    assert (again.low, again.high) == pytest.approx((check.low, check.high))


def test_of_many_pairs_the_strongest_and_some_others_are_taken():
    explainer = point_explainer(products)
    result = explainer.explain(explained_points(), groups=2, progress=False)
    check = explainer.check(result, held_out(), pairs=6, progress=False)
    assert len(check.pairs) == 6
    assert set(result.ranking().top(3)) <= set(check.pairs)
    assert explainer.check(result, held_out(), pairs=6, progress=False).pairs == check.pairs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"baseline": "median"}, "baseline='median' is unknown"),
        ({"baseline": [1, 2]}, "one for each of the 5 units"),
        ({"pairs": 1}, "pairs"),
        ({"measure": "hessian"}, "measure='hessian' is unknown"),
    ],
)
def test_wrong_arguments_are_named(options, words):
    explainer = point_explainer(products)
    result = explainer.explain(explained_points(), groups=2, progress=False)
    with pytest.raises(geh.GEHError, match=words):
        explainer.check(result, held_out(), progress=False, **options)


def test_other_units_and_other_results_are_refused():
    explainer = point_explainer(products)
    result = explainer.explain(explained_points(), groups=2, progress=False)
    with pytest.raises(geh.GEHError, match="there are 4 units, and result is about 5"):
        point_explainer(lambda x: x.sum(1)).check(result, held_out()[:, :4])
    with pytest.raises(geh.GEHError, match="no result of explain"):
        explainer.check(3, held_out())
