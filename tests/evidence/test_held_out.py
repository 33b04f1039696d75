"""The held-out test of pairs: level, power, models of all kinds, wrong input."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


def correlated(rows, units, seed, correlation=0.6):
    """Return normal inputs (rows, units), all of whose pairs have the same correlation."""
    generator = np.random.default_rng(seed)
    common = generator.normal(size=(rows, 1))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * generator.normal(size=(rows, units))


def network(x):
    """Return the outputs of a model with two interactions, x0 × x1 and a spurious x1 × x3."""
    return x[:, 0] * x[:, 1] + torch.sin(x[:, 2]) + 0.5 * x[:, 1] * torch.tanh(x[:, 3]) + 0.3 * x[:, 3]


def truth(x):
    """Return the mean of the labels: x0 × x1 interact, x1 × x3 do not, and main effects differ from the model's."""
    return x[:, 0] * x[:, 1] + 1.5 * np.sin(x[:, 2]) + x[:, 3] ** 2 - (x[:, 1] > 0)


def test_pairs(model, x, y, **options):
    explainer = geh.GEHExplainer(model, posterior=POINT, **options)
    return explainer.test_pairs(torch.as_tensor(x, dtype=torch.float32), y, progress=False)


test_pairs.__test__ = False


@pytest.fixture(scope="module")
def p_values():
    """P-values (40, 6) of all pairs on 40 data sets with correlated units and errors of unequal variance."""
    rows = []
    for seed in range(40):
        x = correlated(700, 4, seed)
        noise = np.random.default_rng(1000 + seed).normal(size=700) * (0.5 + np.abs(x[:, 0]))
        rows.append(test_pairs(network, x, truth(x) + noise).p_value)
    return np.array(rows)


def test_pairs_that_do_not_interact_are_found_at_the_nominal_level(p_values):
    """The network has x1 × x3 and, from rounding of its curvature, nothing else; the labels have neither."""
    spurious = p_values[:, 4]
    assert (p_values[:, [1, 2, 3, 5]] == 1).all()  # the network has no such interaction: nothing to test
    assert (spurious < 0.05).sum() <= 6  # 2 of 40 expected; more than 6 have probability 0.3 %
    assert 0.3 < spurious.mean() < 0.7


def test_a_pair_that_interacts_is_found_every_time(p_values):
    assert (p_values[:, 0] < 1e-3).all()


def test_the_slope_is_the_share_of_the_interaction_that_the_labels_contain():
    x = correlated(3000, 3, 0, 0.3)
    noise = np.random.default_rng(1).normal(size=3000)
    evidence = test_pairs(lambda x: 2 * x[:, 0] * x[:, 1] + x[:, 2], x, x[:, 0] * x[:, 1] + x[:, 2] + noise)
    assert abs(evidence.slope[0] - 0.5) < 3 * evidence.slope_se[0] < 0.1
    assert evidence.n_rows == 3000
    assert evidence.link == "identity"


def test_an_interaction_of_the_wrong_sign_is_not_evidence():
    x = correlated(500, 2, 0)
    noise = np.random.default_rng(1).normal(size=500)
    evidence = test_pairs(lambda x: 3 * x[:, 0] - x[:, 0] * x[:, 1], x, 3 * x[:, 0] + x[:, 0] * x[:, 1] + noise)
    assert evidence.slope[0] < -0.8
    assert evidence.p_value[0] > 0.999


def test_an_additive_model_has_nothing_to_test(recwarn):
    x = correlated(400, 3, 0)
    evidence = test_pairs(lambda x: x.exp().sum(dim=1), x, x[:, 0] * x[:, 1])
    assert np.isnan(evidence.slope).all()
    assert np.isnan(evidence.slope_se).all()
    assert (evidence.p_value == 1).all()
    assert (evidence.shrinkage == 0).all()
    assert not [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def test_binary_labels_are_tested_on_the_log_odds():
    x = correlated(3000, 4, 0)
    probability = 1 / (1 + np.exp(-truth(x)))
    y = np.random.default_rng(1).uniform(size=3000) < probability
    evidence = test_pairs(network, x, y)
    assert evidence.link == "logit"
    assert evidence.p_value[0] < 1e-6
    assert abs(evidence.slope[0] - 1) < 3 * evidence.slope_se[0]
    assert evidence.p_value[4] > 0.01
    text = test_pairs(network, x, np.where(y, "yes", "no"))
    assert np.array_equal(text.p_value, evidence.p_value)


@pytest.mark.parametrize(("count", "output"), [(20, "raw"), (480, "raw"), (60, "raw"), (20, "probability")])
def test_with_few_rows_of_a_class_log_odds_are_not_tested(count, output, recwarn):
    """With 10 of 1,000 rows, half of the pairs that do not interact had p-values below 5 %."""
    x = correlated(500, 3, seed=0)
    log_odds = x[:, 0] * x[:, 1] + 2 * x[:, 2]
    y = (log_odds >= np.sort(log_odds)[-count]).astype(int)
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + 2 * x[:, 2] - 2, output=output, posterior=POINT)
    result = explainer.explain(x, groups=1, evidence=(x, y), progress=False)
    words = (
        "one of the two classes has 20 of 500 held-out rows, too few to test pairs of 3 units; at least 35 are needed"
    )
    refused = count != 60 and output == "raw"
    assert sum(words in str(warning.message) for warning in recwarn) == refused
    assert np.isnan(result.evidence.p_value).all() == refused
    assert result.table()["significant"].any() != refused or output == "probability"
    assert any(words in message for message in result.settings["warnings"]) == refused


def test_the_labels_of_several_classes_are_those_of_the_target_against_the_rest():
    x = correlated(3000, 3, 0)
    odds = np.exp(1.5 * x[:, 0] * x[:, 1] + x[:, 2])
    generator = np.random.default_rng(1)
    first = generator.uniform(size=3000) < odds / (1 + odds)
    y = np.where(first, 0, generator.integers(1, 3, 3000))

    def logits(x):
        score = 1.5 * x[:, 0] * x[:, 1] + x[:, 2]
        return torch.stack([score, torch.zeros_like(score), torch.zeros_like(score)], dim=1) + x[:, :1]

    explainer = geh.GEHExplainer(logits, posterior=POINT)
    x = torch.as_tensor(x, dtype=torch.float32)
    evidence = explainer.test_pairs(x, torch.as_tensor(y), target=0, progress=False)
    assert evidence.link == "logit"
    assert evidence.p_value[0] < 1e-10
    other = explainer.test_pairs(x, y, target=2, progress=False)
    assert other.p_value[0] < 1e-3  # the share of class 2 among all falls where class 0 rises
    probability = geh.GEHExplainer(logits, output="probability", posterior=POINT)
    assert probability.test_pairs(x, y, target=0, progress=False).link == "identity"


def test_hidden_units_are_the_inputs_of_what_is_above_them():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Bilinear(3, 3, 1))

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.lower = net[:2]

        def forward(self, x):
            a = self.lower(x)
            return a[:, 0] * a[:, 1] + a[:, 2] + 0.4 * a[:, 1] * a[:, 2]

    model = Product()
    x = torch.randn(1500, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        a = model.lower(x)
    noise = 0.2 * torch.randn(1500, generator=torch.Generator().manual_seed(2))
    explainer = geh.GEHExplainer(model, layer="lower", posterior=POINT)
    evidence = explainer.test_pairs(x, a[:, 0] * a[:, 1] + a[:, 2] + noise, progress=False)
    assert evidence.p_value[0] < 1e-10
    assert evidence.p_value[2] > 0.01


def test_feature_groups_move_together():
    x = correlated(800, 4, 0, 0.2)
    noise = np.random.default_rng(1).normal(size=800)
    model = lambda x: x[:, :2].sum(dim=1) * x[:, 2:].sum(dim=1)  # noqa: E731
    units = geh.units.FeatureGroups({"first": [0, 1], "second": [2, 3]})
    y = (x[:, 0] + x[:, 1]) * (x[:, 2] + x[:, 3]) + noise
    evidence = test_pairs(model, x, y, units=units)
    assert evidence.p_value.shape == (1,)
    assert evidence.p_value[0] < 1e-10


def test_ensembles_are_tested_by_their_mean_function():
    """Members whose interactions cancel have none in the mean."""

    class Scaled(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, x):
            return self.scale * x[:, 0] * x[:, 1] + x[:, 2]

    x = correlated(500, 3, 0)
    y = x[:, 0] * x[:, 1] + x[:, 2] + np.random.default_rng(1).normal(size=500)
    x = torch.as_tensor(x, dtype=torch.float32)
    slopes = {}
    for scales in ((1.0, 3.0), (1.0, -1.0)):
        members = [Scaled(scale) for scale in scales]
        explainer = geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members))
        slopes[scales] = explainer.test_pairs(x, y, progress=False).slope[0]
    assert 0.35 < slopes[1.0, 3.0] < 0.65  # the mean has twice the true interaction
    assert np.isnan(slopes[1.0, -1.0])


def test_dropout_is_off():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Dropout(0.5), nn.Linear(32, 1)).train()
    x = torch.randn(300, 3)
    with torch.no_grad():
        y = net.eval()(x)[:, 0] + 0.1 * torch.randn(300)
    net.train()
    first = geh.GEHExplainer(net).test_pairs(x, y, progress=False)
    second = geh.GEHExplainer(net.eval(), posterior=POINT).test_pairs(x, y, progress=False)
    assert np.array_equal(first.p_value, second.p_value)


def test_trees_and_loaders_and_batch_sizes_give_the_same_numbers():
    from sklearn.ensemble import RandomForestRegressor
    from torch.utils.data import DataLoader, TensorDataset

    x = correlated(600, 3, 0)
    y = x[:, 0] * x[:, 1] + np.random.default_rng(1).normal(size=600)
    forest = RandomForestRegressor(10, max_depth=4, random_state=0).fit(x[:300], y[:300])
    explainer = geh.GEHExplainer(lambda x: torch.as_tensor(forest.predict(x.numpy())), posterior=POINT)
    held_out = torch.as_tensor(x[300:], dtype=torch.float32)
    evidence = explainer.test_pairs(held_out, y[300:], progress=False)
    assert evidence.p_value[0] < 0.05
    loader = DataLoader(TensorDataset(held_out), batch_size=64)
    streamed = explainer.test_pairs(loader, y[300:], progress=False)
    small = explainer.test_pairs(held_out, y[300:], batch_size=50, progress=False)
    for other in (streamed, small):
        assert np.allclose(other.p_value, evidence.p_value, rtol=1e-9)


def test_the_seed_decides():
    x = correlated(400, 3, 0)
    y = truth(np.column_stack([x, x[:, 0]]))
    explainer = geh.GEHExplainer(lambda x: torch.relu(x[:, 0] + x[:, 1]) * x[:, 2], posterior=POINT)
    x = torch.as_tensor(x, dtype=torch.float32)
    first, again, other = (explainer.test_pairs(x, y, seed=seed, progress=False).slope for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_units_with_few_levels_or_one_value_are_tested_or_left_out():
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.integers(0, 2, 800), generator.integers(0, 4, 800), np.ones(800)]).astype(float)
    noise = generator.normal(size=800)
    evidence = test_pairs(lambda x: x[:, 0] * x[:, 1] * x[:, 2], x, x[:, 0] * x[:, 1] + noise)
    assert evidence.p_value[0] < 1e-6
    assert (evidence.p_value[1:] == 1).all()  # the third unit is constant


BAD = {
    "rows": (lambda x, y: (x, y[:-1]), "y has shape"),
    "constant": (lambda x, y: (x, np.ones(len(y))), "same value"),
    "missing": (lambda x, y: (x, np.where(np.arange(len(y)) == 3, np.nan, y)), "missing or infinite in 1 rows"),
    "columns": (lambda x, y: (x[:, :2], y), "columns|features|shape|size|index"),
    "few rows": (lambda x, y: (x[:40], y[:40]), "too few"),
    "two columns": (lambda x, y: (x, np.column_stack([y, y])), "2 columns"),
    "three classes": (lambda x, y: (x, np.digitize(y, [-1, 1]).astype(str)), "3 classes"),
}


def test_pairs_of_binary_units_are_tested():
    generator = np.random.default_rng(0)
    x = (generator.normal(size=(800, 3)) > 0) * 1.0
    y = x[:, 0] * x[:, 1] + x[:, 2] + generator.normal(size=800)
    evidence = test_pairs(lambda x: x[:, 0] * x[:, 1] + x[:, 2], x, y)
    assert evidence.p_value[0] < 1e-3
    assert 0.6 < evidence.slope[0] < 1.4
    assert np.isnan(evidence.slope[1:]).all()


@pytest.mark.parametrize("name", BAD)
def test_labels_that_cannot_be_tested_raise_with_the_way_out(name):
    change, message = BAD[name]
    x = correlated(300, 4, 0)
    x_held, y_held = change(torch.as_tensor(x, dtype=torch.float32), truth(x))
    explainer = geh.GEHExplainer(network, posterior=POINT)
    with pytest.raises((ValueError, TypeError, RuntimeError, IndexError), match=message):
        explainer.test_pairs(x_held, y_held, progress=False)


def test_classes_of_another_model_and_classes_that_are_absent_raise():
    model = nn.Linear(3, 3)
    x = torch.randn(200, 3)
    explainer = geh.GEHExplainer(model, posterior=POINT)
    for y, target, message in [
        (torch.arange(200) % 5, 0, "classes 0 to 4, but the model has 3 outputs"),
        (torch.arange(200) % 2, 2, "of class 2 in no held-out rows"),
        (torch.arange(200) % 3, torch.arange(200) % 3, "one target for all rows"),
        (np.array(["a", "b"] * 100), 0, "index of the class"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            explainer.test_pairs(x, y, target=target, progress=False)


def test_backgrounds_of_each_row_s_own_would_inflate_the_test():
    """The offset must be a function of x without i plus one without j: the same background values for all rows."""
    from geh_explain.statistics.slopes import slope_test

    def rejections(own_background):
        """Count rejections at 5 % where labels have no interaction, with the local interaction as direction."""
        count = 0
        for seed in range(60):
            generator = np.random.default_rng(seed)
            x, noise = generator.normal(size=(400, 2)), generator.normal(size=400)
            background = generator.normal(size=(400 if own_background else 1, 2))
            local = (x[:, 0] - background[:, 0]) * (x[:, 1] - background[:, 1])
            offset = x[:, 0] * x[:, 1] - local
            basis, _ = np.linalg.qr(np.column_stack([np.ones(400), x]))
            count += slope_test(local, noise - offset, basis).p_value < 0.05
        return count

    assert rejections(own_background=False) <= 8  # 3 expected
    assert rejections(own_background=True) >= 30


@pytest.mark.parametrize("binary", [False, True])
def test_an_interaction_whose_sign_depends_on_a_third_unit_is_found(binary):
    """Of x0 x1 x2 the mean interaction of any two is 0; that of the model is its sampling error."""
    generator = np.random.default_rng(0)
    x = generator.integers(0, 2, (1500, 4)) * 2.0 - 1 if binary else generator.normal(size=(1500, 4))
    y = x[:, :3].prod(axis=1) + x[:, 3] + generator.normal(size=1500)
    evidence = test_pairs(lambda x: x[:, :3].prod(dim=1) + x[:, 3] + 0.1 * x[:, 0] * x[:, 3], x, y)
    pairs = list(zip(*np.triu_indices(4, 1), strict=True))
    for pair in ((0, 1), (0, 2), (1, 2)):
        assert evidence.p_value[pairs.index(pair)] < 1e-6
        assert 0.8 < evidence.slope[pairs.index(pair)] < 1.2
    assert evidence.p_value[pairs.index((0, 3))] > 0.01
