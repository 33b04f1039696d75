"""Products of polynomials beside the network, and the comparison of a fit with other models."""

import numpy as np
import pytest
import torch
from numpy.polynomial import legendre as numpy_legendre

import geh_explain as geh
from geh_explain.bnn.data import Table
from geh_explain.bnn.fit_check import FitCheck, check_fit
from geh_explain.bnn.products import (
    PairPolynomials,
    TriplePolynomials,
    degree_of_pairs,
    degree_of_triples,
    legendre,
)
from geh_explain.errors import GEHValueError, GEHWarning


def uniform(rows, features, seed=0):
    return torch.rand(rows, features, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_polynomials_are_those_of_legendre_with_variance_one():
    x = uniform(50, 2).double()
    for degree in (1, 2, 3, 4):
        found = legendre(x, degree)[:, -2:]
        plain = numpy_legendre.legval(x.numpy(), [0] * degree + [1])
        np.testing.assert_allclose(found.numpy(), np.sqrt(2 * degree + 1) * plain, rtol=1e-12)


def test_products_sum_over_all_pairs_of_polynomials():
    """Against a plain loop over features and degrees, for two outputs."""
    products = PairPolynomials(3, 2, 2, wrap=lambda layer: layer).double()
    torch.nn.init.normal_(products.coefficients.weight)
    s = uniform(4, 3).double()
    terms = legendre(torch.tanh(s) / np.tanh(1), 2)
    expected = torch.zeros(4, 2, dtype=torch.double)
    c = products.coefficients.weight.reshape(2, 6, 6)
    for output in range(2):
        for a in range(6):
            for b in range(6):
                expected[:, output] += c[output, a, b] * terms[:, a] * terms[:, b] * 0.1 / 6
    torch.testing.assert_close(products(s), expected)


def test_triples_sum_over_products_of_two_features_and_a_third_polynomial():
    """Against a plain loop over features and degrees, for two outputs."""
    products = TriplePolynomials(3, 2, 2, wrap=lambda layer: layer).double()
    torch.nn.init.normal_(products.coefficients.weight)
    s = uniform(4, 3).double()
    terms = legendre(torch.tanh(s) / np.tanh(1), 2)
    pairs = [(a, b) for a in range(6) for b in range(6) if a % 3 < b % 3]
    c = products.coefficients.weight.reshape(2, 6, len(pairs))
    expected = torch.zeros(4, 2, dtype=torch.double)
    for output in range(2):
        for q in range(6):
            for pair, (a, b) in enumerate(pairs):
                expected[:, output] += c[output, q, pair] * terms[:, a] * terms[:, b] * terms[:, q] * 0.03 / 6
    torch.testing.assert_close(products(s), expected)


def test_sizes_of_triples():
    """outputs x D (D - 1) / 2 x D x degree^3 coefficients: 20,000 by default, a million at most."""
    assert [degree_of_triples(features, 1, None) for features in (2, 3, 17, 18)] == [0, 2, 2, 0]
    assert degree_of_triples(17, 2, None) == 0
    assert geh.bnn.HybridNet(18, hidden=(2,)).triples is None
    assert geh.bnn.HybridNet(4, hidden=(2,), pairs=0).triples is None
    assert geh.bnn.HybridNet(4, hidden=(2,), pairs=0, triples=1).triples.degree == 1
    assert geh.bnn.HybridNet(4, hidden=(2,), pairs=1).triples is None
    for pairs in (None, 2):
        assert geh.bnn.HybridNet(4, interactions=torch.nn.Linear(4, 1), pairs=pairs).triples is None
    assert geh.bnn.HybridNet(1, hidden=(2,), triples=2).triples is None
    with pytest.raises(GEHValueError, match=r"triples=2 needs 3,960,000 coefficients for 100 features"):
        geh.bnn.HybridNet(100, hidden=(2,), triples=2)


def test_a_weak_triple_in_which_no_two_features_interact_on_average_is_learned():
    """y = 4 |x0| + 3 x1^2 + 0.2 x2 (3 x3^2 - 1) (3 x4^2 - 1): no two features of the triple interact on average."""
    x = uniform(3000, 5)
    triple = x[:, 2] * (3 * x[:, 3] ** 2 - 1) * (3 * x[:, 4] ** 2 - 1)
    y = 4 * x[:, 0].abs() + 3 * x[:, 1] ** 2 + 0.2 * triple
    correlation = {}
    for triples in (0, 2):
        net = geh.bnn.HybridNet(5, hidden=(20,), triples=triples)
        geh.bnn.fit(net, x, y, progress=False)
        with torch.no_grad():
            change = net(x)[:, 0] - net(x * torch.tensor([1.0, 1, 0, 1, 1]))[:, 0]
        correlation[triples] = float(np.corrcoef(change, triple)[0, 1])
    assert correlation[2] > 0.9
    assert correlation[0] < 0.5


@pytest.mark.parametrize("weights", ["dropout", "gaussian"])
def test_second_derivatives_and_state_of_a_network_with_triples(weights):
    """Both engines against autograd, and the same numbers after the weights were stored and loaded."""
    net = geh.bnn.HybridNet(4, hidden=(5,), outputs=2, triples=2, weights=weights).double()
    torch.nn.init.normal_(net.triples.coefficients.layer.weight)
    x = uniform(6, 4).double()
    point = geh.posterior.PointEstimate()
    with torch.no_grad():
        before = geh.GEHExplainer(net, posterior=point).explain(x, target=1, groups=1, progress=False)
    hessians = [
        torch.autograd.functional.hessian(lambda t, row=row: net.eval()(row + t)[0, 1], 0 * row) for row in x.split(1)
    ]
    mean = torch.stack([h.reshape(4, 4) for h in hessians]).mean(0)[tuple(np.triu_indices(4, 1))]
    other = geh.bnn.HybridNet(4, hidden=(5,), outputs=2, triples=2, weights=weights, seed=1).double()
    other.load_state_dict(net.state_dict())
    for engine in ("structured", "exact"):
        result = geh.GEHExplainer(other, engine=engine, posterior=point).explain(x, target=1, groups=1, progress=False)
        assert result.settings["engine"] == engine
        np.testing.assert_allclose(result.geh.pair_mean, mean.abs(), rtol=1e-9)
        np.testing.assert_allclose(result.geh.pair_mean, before.geh.pair_mean, rtol=1e-9)


def test_an_empty_batch_has_no_outputs():
    for outputs in (1, 2):
        assert geh.bnn.HybridNet(3, hidden=(4,), outputs=outputs)(torch.zeros(0, 3)).shape == (0, outputs)


def test_many_features_have_polynomials_of_lower_degree_or_none():
    assert [degree_of_pairs(features, 1, None) for features in (333, 334, 500, 501, 1000, 1001)] == [3, 2, 2, 1, 1, 0]
    assert geh.bnn.HybridNet(2000, hidden=(2,)).pairs is None
    with pytest.raises(GEHValueError, match=r"pairs=3 needs 2,250,000 coefficients for 500 features"):
        geh.bnn.HybridNet(500, hidden=(2,), pairs=3)


def test_other_interactions_have_no_products_unless_asked_for():
    other = torch.nn.Linear(3, 1)
    assert geh.bnn.HybridNet(3, interactions=other).pairs is None
    assert geh.bnn.HybridNet(3, interactions=other, pairs=1).pairs.degree == 1
    assert geh.bnn.HybridNet(3, hidden=(4,), pairs=0).pairs is None


@pytest.mark.parametrize("weights", ["dropout", "gaussian", "point"])
def test_a_weak_pair_among_strong_main_effects_is_learned(weights):
    """y = 5 sin(3 x0) + 4 x1^2 + 3 x2 + 0.1 x3 x4: the product is 0.02 % of the variance."""
    x = uniform(3000, 5)
    y = 5 * torch.sin(3 * x[:, 0]) + 4 * x[:, 1] ** 2 + 3 * x[:, 2] + 0.1 * x[:, 3] * x[:, 4]
    net = geh.bnn.HybridNet(5, hidden=(20,), weights=weights)
    geh.bnn.fit(net, x, y, epochs=40, progress=False)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    result = explainer.explain(x[:300], groups=1, progress=False)
    assert result.settings["engine"] == "structured"
    assert result.table().loc[0, ["unit_i", "unit_j"]].tolist() == ["x3", "x4"]


@pytest.mark.parametrize(("pairs", "triples"), [(2, 0), (0, 2)])
def test_the_draws_of_products_vary(pairs, triples):
    net = geh.bnn.HybridNet(3, hidden=(4,), weights="gaussian", pairs=pairs, triples=triples)
    torch.nn.init.zeros_(net.interactions[-1].layer.weight)
    x = uniform(50, 3)
    spread = geh.GEHExplainer(net).explain(x, groups=1, draws=20, progress=False).geh.std
    assert bool((spread[np.triu_indices(3, 1)] > 0).all())


def as_table(x, y, task="regression"):
    return Table(x, y if task == "classification" else y[:, None], task, None)


def test_shares_of_the_three_models():
    """A product has no additive part: trees explain it, an additive model does not, an exact network all of it."""
    x = uniform(4000, 2)
    y = x.prod(1)
    check = check_fit(as_table(x[:3000], y[:3000]), as_table(x[3000:], y[3000:]), y[3000:, None].double().numpy(), 0)
    assert check.network == pytest.approx(1.0)
    assert abs(check.additive) < 0.05
    assert check.trees > 0.9
    assert check.has_learned


def test_shares_of_classes_are_of_cross_entropy():
    x = uniform(3000, 2)
    y = (x[:, 0] > 0).long()
    halves = np.zeros((1000, 1))  # logit 0: the entropy of two equal classes
    check = check_fit(
        as_table(x[:2000], y[:2000], "classification"), as_table(x[2000:], y[2000:], "classification"), halves, 0
    )
    assert check.network == pytest.approx(0.0, abs=0.02)
    assert check.trees > 0.9
    assert not check.has_learned


def test_a_network_that_learned_too_little_gets_a_warning():
    x = uniform(1500, 2)
    net = geh.bnn.HybridNet(2, hidden=(1,), weights="point", pairs=0)
    with pytest.warns(GEHWarning, match="has not learned what there is"):
        history = geh.bnn.fit(net, x, x.prod(1), epochs=50, lr=1e-4, progress=False)
    assert isinstance(history.check, FitCheck)
    assert not history.check.has_learned


def test_short_trainings_and_inputs_that_are_no_table_are_not_compared():
    x = uniform(100, 2)
    assert geh.bnn.fit(geh.bnn.HybridNet(2, hidden=(2,)), x, x[:, 0], epochs=3, progress=False).check is None
    images = uniform(40, 16).reshape(40, 1, 4, 4)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 1))
    assert geh.bnn.fit(net, images, images.mean((1, 2, 3)), epochs=50, progress=False).check is None


def test_a_feature_is_as_important_as_its_most_important_polynomial():
    net = geh.bnn.HybridNet(3, hidden=(4,), pairs=2, triples=0)
    with torch.no_grad():
        net.interactions[0].drop.logits.copy_(torch.tensor([0.0, 0.0, -3.0]))
        net.pairs.coefficients.drop.logits.copy_(torch.tensor([0.0, -1.0, 0.0, 0.0, -2.0, 0.0]))
    torch.testing.assert_close(net.input_dropout_rates, torch.sigmoid(torch.tensor([0.0, -2.0, -3.0])))


def test_a_feature_is_as_important_as_its_most_important_product():
    """Of degree 2, product 0 of two polynomials is that of x0 and x1, and the last one of x1 and x2, both squared."""
    net = geh.bnn.HybridNet(3, hidden=(4,))
    rates = net.triples.coefficients.drop.logits
    places = [place for pair in (0, -1) for place in (net.triples.first[pair], net.triples.second[pair])]
    assert [int(place) % 3 for place in places] == [0, 1, 1, 2]
    with torch.no_grad():
        net.interactions[0].drop.logits.fill_(0)
        net.pairs.coefficients.drop.logits.fill_(0)
        rates.fill_(0)
        rates[0], rates[-1] = -1, -2
    torch.testing.assert_close(net.input_dropout_rates, torch.sigmoid(torch.tensor([-1.0, -2.0, -2.0])))
