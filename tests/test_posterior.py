"""A draw is one function: the same masks or weights for every row, and another function in the next draw."""

import random
from contextlib import contextmanager, suppress
from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh
from geh_explain.posterior import Ensemble, MCDropout, PointEstimate, Stochastic, WeightSamples


@pytest.fixture(autouse=True)
def _seeded_and_on_one_core():
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tensors this small, waking other cores takes longer than the work
    yield
    torch.set_num_threads(threads)


def network(features=3, hidden=6):
    layers = nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    return nn.Sequential(*layers).double()


def dropping(p=0.5, hidden=6):
    layers = nn.Linear(3, hidden), nn.Tanh(), nn.Dropout(p), nn.Linear(hidden, 4), nn.Tanh(), nn.Linear(4, 1)
    return nn.Sequential(*layers).double()


def points(rows=6, shape=(3,)):
    return torch.randn(rows, *shape, dtype=torch.double)


def with_twins(shape=(3,)):
    """Return rows of which the first and the last are equal, and another one in between."""
    first, other = points(2, shape)
    return torch.stack([first, other, other, first])


def local_hessians(model, inputs, posterior=None, layer=None, draws=6, **options):
    """Return the Hessians (draws, rows, pairs): every row is a group of its own."""
    explainer = geh.GEHExplainer(model, layer, posterior=posterior)
    return explainer.explain(inputs, groups=range(len(inputs)), draws=draws, progress=False, **options).signed


def explain(model, posterior, inputs=None, layer=None, **options):
    options = {"groups": 2, "draws": 4, "progress": False, **options}
    inputs = points(20) if inputs is None else inputs
    return geh.GEHExplainer(model, layer, posterior=posterior).explain(inputs, **options)


def same(one, other, rtol=1e-10):
    return np.allclose(one, other, rtol=rtol, atol=1e-14)


# MC dropout: one mask per draw


class Functional(nn.Module):
    """Calls a dropout function, in the way that authors of models do."""

    def __init__(self, drop):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(3, 12).double(), nn.Linear(12, 1).double(), drop

    def forward(self, x):
        return self.last(torch.tanh(self.drop(self.first(x), self.training)))


class Maps(nn.Module):
    """Brings rows to (n, channels, ...) with ``rank`` further dimensions, drops, and brings them back."""

    def __init__(self, drop, rank):
        super().__init__()
        self.first, self.last = nn.Linear(3, 12 * 2**rank).double(), nn.Linear(12 * 2**rank, 1).double()
        self.drop, self.shape = drop, (12, *[2] * rank)

    def forward(self, x):
        maps = self.first(x).reshape(-1, *self.shape)
        return self.last(torch.tanh(self.drop(maps).flatten(1)))


KINDS = {
    "Dropout": lambda: Maps(nn.Dropout(0.5), 0),
    "Dropout in place": lambda: Maps(nn.Dropout(0.5, inplace=True), 0),
    "Dropout1d": lambda: Maps(nn.Dropout1d(0.5), 1),
    "Dropout2d": lambda: Maps(nn.Dropout2d(0.5), 2),
    "Dropout2d in place": lambda: Maps(nn.Dropout2d(0.5, inplace=True), 2),
    "Dropout3d": lambda: Maps(nn.Dropout3d(0.5), 3),
    "AlphaDropout": lambda: Maps(nn.AlphaDropout(0.5), 0),
    "AlphaDropout in place": lambda: Maps(nn.AlphaDropout(0.5, inplace=True), 0),
    "FeatureAlphaDropout": lambda: Maps(nn.FeatureAlphaDropout(0.5), 2),
    "F.dropout with self.training": lambda: Functional(lambda h, training: F.dropout(h, 0.5, training)),
    "F.dropout by keyword": lambda: Functional(lambda h, training: F.dropout(h, p=0.5, training=training)),
    "F.dropout always on": lambda: Functional(lambda h, training: F.dropout(h, 0.5)),
    "F.dropout in place": lambda: Functional(lambda h, training: F.dropout(h, 0.5, training, inplace=True)),
    "F.alpha_dropout": lambda: Functional(lambda h, training: F.alpha_dropout(h, 0.5, training)),
    "F.dropout1d": lambda: Maps(lambda maps: F.dropout1d(maps, 0.5), 1),
    "F.feature_alpha_dropout": lambda: Maps(lambda maps: F.feature_alpha_dropout(maps, 0.5), 2),
    "torch.dropout": lambda: Functional(lambda h, training: torch.dropout(h, 0.5, training)),
    "torch.dropout_": lambda: Functional(lambda h, training: torch.dropout_(h, 0.5, training)),
    "torch.feature_dropout": lambda: Maps(lambda maps: torch.feature_dropout(maps, 0.5, True), 2),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("posterior", [None, MCDropout()], ids=["automatic", "explicit"])
def test_rows_share_the_mask_of_a_draw_and_draws_have_masks_of_their_own(kind, posterior):
    hessians = local_hessians(KINDS[kind](), with_twins(), posterior)
    assert same(hessians[:, 0], hessians[:, 3])
    assert same(hessians[:, 1], hessians[:, 2])
    assert not same(hessians[:, 0], hessians[:, 1])
    assert len(np.unique(hessians[:, 0].round(12), axis=0)) == 6


@every_kind
def test_rows_share_the_mask_of_a_draw_whatever_the_batch_size(kind):
    model, inputs = KINDS[kind](), with_twins()
    together = local_hessians(model, inputs)
    assert same(together, local_hessians(model, inputs, batch_size=1))
    assert same(together, local_hessians(model, inputs, batch_size=3))


@every_kind
def test_masks_are_shared_at_a_hidden_layer_too(kind):
    model = KINDS[kind]()
    inputs = with_twins()
    hessians = local_hessians(nn.Sequential(nn.Linear(3, 3).double(), nn.Tanh(), model), inputs, layer="0")
    assert same(hessians[:, 0], hessians[:, 3])
    assert len(np.unique(hessians[:, 0].round(12), axis=0)) == 6


def masks_of(model, module, rows, draws=1, seed=0):
    """Yield, for each draw, what a dropout module takes in and puts out, and the model's output, for ``rows``."""
    for draw in MCDropout().draws(model, draws, seed):
        seen = []
        with draw, torch.no_grad():
            model(rows[:1])
            handle = module.register_forward_hook(lambda m, args, out, seen=seen: seen.append((args[0], out)))
            output = model(rows)
            handle.remove()
        yield (*seen[0], output)


def test_a_draw_is_the_network_with_the_mask_applied_by_hand():
    model, rows, p = dropping(p=0.3, hidden=10), points(7), 0.3
    model.eval()
    for before, after, output in masks_of(model, model[2], rows, draws=5):
        mask = (after[0] != 0).double()
        assert 0 < mask.sum() < 10
        assert torch.allclose(after, before * mask / (1 - p), rtol=1e-14)
        by_hand = model[5](torch.tanh(model[3](torch.tanh(model[0](rows)) * mask / (1 - p))))
        assert torch.allclose(output, by_hand, rtol=1e-14)


def test_the_hessians_of_a_draw_are_those_of_the_network_with_the_mask_applied_by_hand():
    model, rows, p = dropping(p=0.3), points(5), 0.3
    model.eval()
    draws = local_hessians(model, rows, MCDropout(), draws=4, seed=11)
    for hessians, (_, after, _) in zip(draws, masks_of(model, model[2], rows, draws=4, seed=11), strict=True):
        mask = (after[0] != 0).double() / (1 - p)

        def by_hand(x, mask=mask):
            return model[5](torch.tanh(model[3](torch.tanh(model[0](x)) * mask))).squeeze()

        for row, found in zip(rows, hessians, strict=True):
            expected = torch.autograd.functional.hessian(by_hand, row)
            assert same(found, expected[np.triu_indices(3, 1)])


def test_whole_channels_are_dropped_together():
    model = Maps(nn.Dropout2d(0.5), 2).eval()
    for before, after, _ in masks_of(model, model.drop, points(4), draws=5):
        share = (after / before).flatten(2)
        assert torch.equal(share, share[:1, :, :1].expand_as(share))
        assert set(share.unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("drop", [nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)])
def test_alpha_dropout_is_what_torch_does_in_train_mode(drop):
    model = Maps(drop, 1).eval()
    kept, dropped = set(), set()
    for before, after, _ in masks_of(model, drop, points(3), draws=20):
        # In torch, x becomes a x + b where it is kept, and a constant c where it is dropped.
        slope = ((after[1] - after[0]) / (before[1] - before[0])).flatten()
        kept |= {round(value, 9) for value in slope.tolist() if abs(value) > 1e-9}
        dropped |= {round(value, 9) for value in after[0].flatten()[slope.abs() < 1e-9].tolist()}
    ones = torch.ones(1, 1000, 1, dtype=torch.double)
    small, large = drop.train()(ones).unique().tolist()
    shift = large - ((1 - 0.2) * (1 + 0.2 * 1.7580993408473766**2)) ** -0.5
    assert kept == {round(large - shift, 9)}
    assert dropped == {round(small, 9)}


def test_the_mean_over_draws_is_the_output_without_dropout_where_only_a_linear_map_follows():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 1)).double().eval()
    rows = points(5)
    outputs = torch.stack([output for *_, output in masks_of(model, model[2], rows, draws=1500)]).squeeze(2)
    error = outputs.std(0) / 1500**0.5
    assert bool((error > 0).all())
    assert bool(((outputs.mean(0) - model(rows).detach().squeeze(1)).abs() < 4.5 * error).all())


def test_nodes_are_dropped_with_the_probability_that_the_layer_says():
    model = dropping(p=0.2, hidden=50).eval()
    dropped = [(after[0] == 0).double() for _, after, _ in masks_of(model, model[2], points(2), draws=200)]
    assert abs(float(torch.stack(dropped).mean()) - 0.2) < 4.5 * (0.2 * 0.8 / 10_000) ** 0.5


def test_several_dropouts_have_masks_of_their_own():
    drop = nn.Dropout(0.5)  # one module called twice must not reuse its first mask
    model = nn.Sequential(nn.Linear(3, 40), drop, nn.Linear(40, 40), drop, nn.Tanh(), nn.Linear(40, 1)).double().eval()
    seen = []
    with next(MCDropout().draws(model, 1, 0)), torch.no_grad():
        model(points(1))
        drop.register_forward_hook(lambda module, args, out: seen.append(out[0] == 0))
        model(points(3))
    assert len(seen) == 2
    assert not torch.equal(seen[0], seen[1])


def test_batch_normalisation_stays_in_eval():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 1)).double()
    with torch.no_grad():
        for _ in range(3):
            model(points(30))
    statistics = model[1].running_mean.clone(), model[1].running_var.clone(), int(model[1].num_batches_tracked)
    inputs = with_twins()
    hessians = local_hessians(model.train(), inputs, MCDropout())
    assert torch.equal(model[1].running_mean, statistics[0])
    assert torch.equal(model[1].running_var, statistics[1])
    assert int(model[1].num_batches_tracked) == statistics[2]
    # A row's Hessian does not depend on the company it is in.
    assert same(hessians[:, :2], local_hessians(model, inputs[:2], MCDropout()))
    assert same(hessians[:, :1], local_hessians(model, inputs[:1], MCDropout()))


class TwoDropouts(nn.Module):
    """Drops in two modules and in a function."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(*size).double() for size in ((3, 30), (30, 30), (30, 1)))
        self.low, self.high = nn.Dropout(0.5), nn.Dropout(0.5)
        self.dropped = {}

    def drop(self, name, function, hidden):
        out = function(hidden)
        self.dropped[name] = not torch.equal(out, hidden)
        return out

    def forward(self, x):
        hidden = self.drop("low", self.low, torch.tanh(self.first(x)))
        hidden = self.drop("high", self.high, torch.tanh(self.second(hidden)))
        return self.last(torch.tanh(self.drop("function", lambda h: F.dropout(h, 0.5, self.training), hidden)))


def dropped_where(model, modules):
    model.eval()
    for draw in MCDropout(modules).draws(model, 1, 0):
        with draw, torch.no_grad():
            model(points(1))
            model(points(3))
    return {name for name, dropped in model.dropped.items() if dropped}


def test_only_the_chosen_modules_drop():
    model = TwoDropouts()
    assert dropped_where(model, [model.low]) == {"low"}
    assert dropped_where(model, [model.high]) == {"high"}
    assert dropped_where(model, [model.low, model.high]) == {"low", "high"}


def test_a_module_chosen_twice_drops_all_the_same():
    model = TwoDropouts()
    assert dropped_where(model, [model.low, model.low]) == {"low"}


def test_choosing_a_module_chooses_the_dropout_inside_it():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = TwoDropouts()
            self.dropped = self.inner.dropped

        def forward(self, x):
            return F.dropout(self.inner(x), 0.5, self.training)

    model = Outer()
    inside = {"low", "high"}
    assert inside <= dropped_where(model, [model.inner])
    # A chosen module inside another chosen one does not end the outer one's choice.
    assert dropped_where(model, [model.inner, model.inner.low]) == dropped_where(model, [model.inner])


def test_choosing_all_dropout_modules_is_the_default():
    model = dropping()
    inputs = points()
    assert same(local_hessians(model, inputs, MCDropout([model[2]])), local_hessians(model, inputs, MCDropout()))


def test_more_dropout_means_more_spread():
    torch.manual_seed(1)
    model = dropping(p=0.1, hidden=20)
    little = explain(model, None, draws=60).geh.std[0, 1]
    model[2].p = 0.5
    assert explain(model, None, draws=60).geh.std[0, 1] > little > 0


# MC dropout: nothing to drop


class OnlyInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(F.dropout(x, 0.5) if self.training else x)


@pytest.mark.parametrize("model", [network(), dropping(p=0.0), OnlyInTraining()], ids=["none", "p=0", "only training"])
def test_asking_for_dropout_where_there_is_none_is_an_error(model):
    with pytest.raises(geh.GEHError, match=r"dropped nothing.*Ensemble, WeightSamples or Stochastic") as error:
        explain(model, MCDropout())
    assert isinstance(error.value, RuntimeError)


@pytest.mark.parametrize("model", [network(), dropping(p=0.0), OnlyInTraining()], ids=["none", "p=0", "only training"])
def test_without_dropout_the_default_is_the_point_estimate_said_in_a_warning(model):
    inputs = points(20)
    with pytest.warns(geh.GEHWarning, match="no dropout.*point estimate.*posterior=") as caught:
        result = explain(model, None, inputs)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert result.settings["posterior"] == "PointEstimate()"
    assert np.array_equal(result.signed, explain(model, PointEstimate(), inputs).signed)


def test_a_chosen_module_that_drops_nothing_is_an_error():
    model = dropping()
    with pytest.raises(geh.GEHError, match="dropped nothing"):
        explain(model, MCDropout([model[1]]))


def test_modules_of_another_model_are_refused():
    with pytest.raises(geh.GEHError, match=r"modules.*Dropout.*not part of the model"):
        explain(dropping(), MCDropout([nn.Dropout()]))


@pytest.mark.parametrize("modules", [[], 3, ["drop"], nn.Dropout(), "drop"], ids=repr)
def test_modules_must_be_a_list_of_modules(modules):
    with pytest.raises(geh.GEHError, match=r"modules.*list"):
        MCDropout(modules)


def test_the_point_estimate_is_the_network_without_dropout():
    model, inputs = dropping(), points(20)
    without = nn.Sequential(*(layer for layer in model if not isinstance(layer, nn.Dropout)))
    assert same(explain(model, PointEstimate(), inputs).signed, explain(without, PointEstimate(), inputs).signed)


# MC dropout: a bare draw, as a user may enter it


def test_the_first_forward_of_a_bare_draw_must_have_one_row():
    model = dropping()
    with next(MCDropout().draws(model, 1, 0)):
        with pytest.raises(geh.GEHError, match=r"single row.*model\(inputs\[:1\]\)"):
            model(points(5))
        assert model(points(1)).shape == (1, 1)
        assert model(points(5)).shape == (5, 1)


def test_the_first_forward_of_a_bare_draw_must_have_one_row_by_keyword_too():
    model = dropping()
    with next(MCDropout().draws(model, 1, 0)), pytest.raises(geh.GEHError, match="single row"):
        model(input=points(5))


def test_the_first_forward_of_a_bare_draw_must_have_one_row_whatever_else_is_passed():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = dropping()

        def forward(self, x, factor):
            return self.net(x * factor)

    model = Scaled()
    with next(MCDropout().draws(model, 1, 0)), pytest.raises(geh.GEHError, match="single row"):
        model(points(5), torch.ones(1))


class Erratic(nn.Module):
    """Drops at its end for some sizes of the batch only."""

    def __init__(self, drops_for):
        super().__init__()
        self.net, self.drops_for = dropping(), drops_for

    def forward(self, x):
        return F.dropout(self.net(x), 0.5) if self.drops_for(len(x)) else self.net(x)


def test_a_forward_that_drops_more_often_than_the_first_one_is_refused():
    with pytest.raises(geh.GEHError, match=r"MCDropout.*more often.*must not\s+depend on"):
        explain(Erratic(lambda rows: rows > 1), MCDropout())


def test_a_forward_that_drops_less_often_than_the_first_one_is_refused():
    with pytest.raises(geh.GEHError):
        explain(Erratic(lambda rows: rows == 1), MCDropout())


# Attention


class Attention(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(4, 2, dropout=p, batch_first=True), nn.Linear(4, 1)
        self.double()

    def forward(self, x):
        return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))


class BareAttention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).mean((1, 2))


@pytest.mark.parametrize("model", [Attention(0.5), BareAttention()], ids=["module", "function"])
def test_dropout_inside_attention_is_shared_by_rows_or_refused(model):
    hessians = None
    with suppress(geh.GEHError):
        hessians = local_hessians(model, with_twins((3, 4)), MCDropout())
    assert hessians is None or same(hessians[:, 0], hessians[:, 3], rtol=1e-8)
    assert hessians is None or hessians[:, 0].std(0).any()


def test_dropout_inside_attention_is_not_passed_over_where_there_is_other_dropout_too():
    encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, activation="gelu", batch_first=True).double()
    model, inputs = nn.Sequential(encoder, nn.Flatten(), nn.Linear(12, 1).double()), points(2, (3, 4))
    found = []
    for p in (0.0, 0.9):
        encoder.self_attn.dropout = p
        found.append(local_hessians(model, inputs, MCDropout()))
    assert not same(*found)


def test_an_encoder_layer_shares_its_masks():
    encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, activation="gelu", batch_first=True).double()
    model = nn.Sequential(encoder, nn.Flatten(), nn.Linear(12, 1).double())
    hessians = local_hessians(model, with_twins((3, 4)), MCDropout())
    assert same(hessians[:, 0], hessians[:, 3], rtol=1e-8)
    assert not same(hessians[0, 0], hessians[1, 0])


# Seeds


def posteriors_with_a_seed():
    return [(dropping(hidden=40), MCDropout()), (WeightNoise(), Stochastic())]


def test_the_first_draws_are_the_same_however_many_follow():
    inputs = points()
    for model, posterior in posteriors_with_a_seed():
        few = local_hessians(model, inputs, posterior, draws=3)
        many = local_hessians(model, inputs, posterior, draws=7)
        assert np.array_equal(few, many[:3])


def test_a_seed_decides_the_draws():
    inputs = points()
    for model, posterior in posteriors_with_a_seed():
        once = local_hessians(model, inputs, posterior, seed=5)
        torch.manual_seed(123)
        assert np.array_equal(once, local_hessians(model, inputs, posterior, seed=5))
        assert not same(once, local_hessians(model, inputs, posterior, seed=6))


def test_neighbouring_seeds_share_no_draw():
    inputs = points(2)
    for model, posterior in posteriors_with_a_seed():
        draws = np.concatenate([local_hessians(model, inputs, posterior, seed=seed) for seed in range(4)])
        assert len(np.unique(draws.round(12), axis=0)) == len(draws)


# Ensembles


def test_an_ensemble_is_its_members_explained_one_by_one():
    members = [network(hidden=4), dropping(), lambda x: x[:, 0] * x[:, 1] ** 2 + x[:, 2]]
    inputs = points()
    draws = local_hessians(network(), inputs, Ensemble(members))
    alone = [local_hessians(member, inputs, PointEstimate())[0] for member in members]
    assert np.array_equal(draws, np.stack(alone))


def test_the_model_itself_may_be_a_member():
    members = [network(), network(hidden=4)]
    inputs = points()
    draws = local_hessians(members[0], inputs, Ensemble(members))
    assert np.array_equal(draws[0], local_hessians(members[0], inputs, PointEstimate())[0])
    assert np.array_equal(draws[1], local_hessians(members[1], inputs, PointEstimate())[0])


def test_a_member_may_contain_the_model():
    model = network()
    member = nn.Sequential(model, nn.Tanh())
    inputs = points()
    draws = local_hessians(model, inputs, Ensemble([model, member]))
    assert np.array_equal(draws[1], local_hessians(member, inputs, PointEstimate())[0])


def test_an_ensemble_gives_as_many_draws_as_it_has_members():
    members = [network() for _ in range(5)]
    assert len(explain(members[0], Ensemble(members), draws=100).signed) == 5
    assert len(explain(members[0], Ensemble(nn.ModuleList(members)), draws=3).signed) == 3


@pytest.mark.parametrize("layer", ["0", "2"])
def test_an_ensemble_has_no_hidden_units_to_compare(layer):
    members = [network(), network()]
    with pytest.raises(geh.GEHError, match=rf"layer='{layer}'.*do not correspond.*(MCDropout|WeightSamples)") as error:
        geh.GEHExplainer(members[0], layer, posterior=Ensemble(members))
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    "models", [[], network(), 5, None, [3], ["net"]], ids=["empty", "one", "5", "None", "[3]", "text"]
)
def test_an_ensemble_is_a_list_of_networks(models):
    with pytest.raises(geh.GEHError, match="model"):
        Ensemble(models)


# Samples of the weights


def perturbed(model, number=4):
    entries = model.state_dict()
    return [{name: value + 0.3 * torch.randn_like(value) for name, value in entries.items()} for _ in range(number)]


def explained_copies(model, samples, inputs, layer=None):
    """Return what the posterior should give: each sample loaded into a copy of the model."""
    found = []
    for sample in samples:
        copy = deepcopy(model)
        copy.load_state_dict(sample, strict=False)
        found.append(local_hessians(copy, inputs, PointEstimate(), layer)[0])
    return np.stack(found)


@pytest.mark.parametrize("layer", [None, "0"])
def test_samples_are_copies_of_the_model_with_those_weights_loaded(layer):
    model, inputs = network(), points()
    samples = perturbed(model)
    expected = explained_copies(model, samples, inputs, layer)
    assert np.array_equal(local_hessians(model, inputs, WeightSamples(samples), layer), expected)
    assert np.array_equal(local_hessians(model, inputs, WeightSamples(tuple(samples)), layer), expected)
    assert np.array_equal(local_hessians(model, inputs, WeightSamples(lambda k: samples[k]), layer, draws=4), expected)


def test_a_callable_is_asked_for_every_draw_by_number():
    model, asked = network(), []
    samples = perturbed(model, 5)

    def sample(k):
        asked.append(k)
        return samples[k]

    explain(model, WeightSamples(sample), draws=5)
    assert asked == [0, 1, 2, 3, 4]


def test_fewer_draws_are_the_first_samples():
    model, inputs = network(), points()
    samples = perturbed(model, 4)
    all_draws = local_hessians(model, inputs, WeightSamples(samples), draws=100)
    assert len(all_draws) == 4
    assert np.array_equal(local_hessians(model, inputs, WeightSamples(samples), draws=2), all_draws[:2])


def test_a_sample_may_hold_some_of_the_weights_only():
    model, inputs = network(), points()
    samples = [{"2.weight": sample["2.weight"]} for sample in perturbed(model)]
    samples[1] = {"0.bias": torch.randn(6, dtype=torch.double)}  # entries of one draw do not stay for the next
    expected = explained_copies(model, samples, inputs)
    assert np.array_equal(local_hessians(model, inputs, WeightSamples(samples)), expected)


def test_a_sample_may_hold_batch_statistics():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)).double().eval()
    inputs = points()
    samples = []
    for k in range(3):
        sample = {name: value.clone() for name, value in model.state_dict().items()}
        sample["1.running_mean"] += k
        sample["1.running_var"] *= 1 + k
        samples.append(sample)
    draws = local_hessians(model, inputs, WeightSamples(samples))
    assert np.array_equal(draws, explained_copies(model, samples, inputs))
    assert not same(draws[0], draws[1])


def test_samples_of_a_frozen_model_in_another_precision_are_taken():
    model, inputs = network().requires_grad_(False), points()
    samples = [{name: value.float().requires_grad_() for name, value in sample.items()} for sample in perturbed(model)]
    draws = local_hessians(model, inputs, WeightSamples(samples))
    assert np.array_equal(draws, explained_copies(model, samples, inputs))


def test_tied_weights_are_taken_under_both_of_their_names():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()
            self.second.weight = self.first.weight

        def forward(self, x):
            return torch.tanh(self.second(torch.tanh(self.first(x)))).sum(1)

    model, inputs = Tied(), points()
    samples = [{name: value * (1 + 0.2 * k) for name, value in model.state_dict().items()} for k in range(3)]
    draws = local_hessians(model, inputs, WeightSamples(samples))
    assert np.array_equal(draws, explained_copies(model, samples, inputs))


def test_samples_without_spread_are_warned_of():
    model = network()
    samples = [model.state_dict()] * 3
    with pytest.warns(geh.GEHWarning, match=r"posterior=WeightSamples.*same scores.*no\s+width") as caught:
        explain(model, WeightSamples(samples))
    assert len(caught) == 1


@pytest.mark.parametrize("posterior", [Ensemble, WeightSamples])
def test_one_sample_alone_is_not_called_a_posterior_without_spread(posterior):
    model = network()
    single = posterior([model]) if posterior is Ensemble else posterior([model.state_dict()])
    assert len(explain(model, single).signed) == 1


WRONG_SAMPLES = {
    "unknown name": ({"module.0.weight": torch.zeros(6, 3)}, r"sample 1.*module\.0\.weight.*Strip prefixes"),
    "wrong shape": ({"0.weight": torch.zeros(3, 6)}, r"0\.weight.*sample 1.*\(3, 6\).*\(6, 3\)"),
    "broadcastable shape": ({"0.weight": torch.zeros(1, 3)}, r"0\.weight.*sample 1.*\(1, 3\).*\(6, 3\)"),
    "not a tensor": ({"0.weight": np.zeros((6, 3))}, r"0\.weight.*sample 1.*ndarray"),
    "NaN": ({"0.bias": torch.full((6,), torch.nan)}, r"0\.bias.*sample 1.*NaN"),
    "infinite": ({"0.bias": torch.full((6,), torch.inf)}, r"0\.bias.*sample 1.*infinite"),
    "empty": ({}, "sample 1.*state dict"),
}


@pytest.mark.parametrize("wrong", WRONG_SAMPLES)
@pytest.mark.parametrize("as_callable", [False, True])
def test_a_wrong_sample_is_named(wrong, as_callable):
    sample, message = WRONG_SAMPLES[wrong]
    model = network()
    samples = [model.state_dict(), sample]
    posterior = WeightSamples((lambda k: samples[k]) if as_callable else samples)
    with pytest.raises(geh.GEHError, match=message):
        explain(model, posterior)


def test_weights_that_overflow_in_the_models_precision_are_named():
    model = network().float()
    sample = {"0.bias": torch.full((6,), 1e300, dtype=torch.double)}
    with pytest.raises(geh.GEHError, match=r"0\.bias.*sample 0"):
        explain(model, WeightSamples([sample]))


@pytest.mark.parametrize("samples", [[], {}, {"0.weight": torch.zeros(1)}, "weights", [1], 5, None], ids=repr)
def test_samples_are_a_list_of_state_dicts(samples):
    with pytest.raises(geh.GEHError, match=r"samples.*state dict"):
        WeightSamples(samples)


def test_a_callable_must_return_state_dicts():
    with pytest.raises(geh.GEHError, match=r"sample 0.*NoneType.*state dict"):
        explain(network(), WeightSamples(lambda k: None))


# Models that draw their own weights


class WeightNoise(nn.Module):
    """A Bayesian layer: new weights in every forward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5).double(), nn.Linear(5, 1).double()

    def forward(self, x):
        weight = self.first.weight + 0.5 * torch.randn_like(self.first.weight)
        return self.last(torch.tanh(F.linear(x, weight, self.first.bias)))


def test_a_stochastic_model_is_one_function_per_draw():
    hessians = local_hessians(WeightNoise(), with_twins(), Stochastic())
    assert same(hessians[:, 0], hessians[:, 3])
    assert not same(hessians[:, 0], hessians[:, 1])
    assert len(np.unique(hessians[:, 0].round(12), axis=0)) == 6


def test_a_stochastic_draw_does_not_depend_on_the_batch_size():
    model, inputs = WeightNoise(), points(9)
    together = local_hessians(model, inputs, Stochastic())
    assert same(together, local_hessians(model, inputs, Stochastic(), batch_size=2))


@pytest.mark.parametrize(
    "source", [lambda: torch.rand(()), np.random.rand, random.random], ids=["torch", "numpy", "random"]
)
def test_every_global_generator_is_frozen(source):
    hessians = local_hessians(lambda x: x[:, 0] * x[:, 1] * source(), with_twins(), Stochastic())
    assert len(np.unique(hessians[:, :, 0].round(12))) == 6


def test_a_stochastic_model_without_the_posterior_is_refused():
    with pytest.raises(geh.GEHError, match=r"not one function.*Stochastic\(\)"):
        explain(WeightNoise(), PointEstimate())


NOISE_PER_ROW = {
    "one number": lambda x: x[:, 0] * x[:, 1] * torch.randn(len(x), dtype=x.dtype),
    "one column": lambda x: (x * torch.rand(len(x), 1, dtype=x.dtype)).prod(1),
    "every number": lambda x: (x * torch.randn(x.shape, dtype=x.dtype)).prod(1),
    "from numpy": lambda x: x[:, 0] * x[:, 1] * torch.as_tensor(np.random.rand(len(x))),
}


@pytest.mark.parametrize("noise", NOISE_PER_ROW)
@pytest.mark.parametrize("rows", [3, 20])
def test_noise_of_every_row_is_refused(noise, rows):
    with pytest.raises(geh.GEHError, match=r"mixes rows|not one function"):
        explain(NOISE_PER_ROW[noise], Stochastic(), points(rows), groups=1)


@pytest.mark.parametrize("options", [{"groups": 3}, {"groups": 1, "scale": "std"}], ids=["groups", "scale"])
def test_a_seed_decides_everything_about_a_stochastic_hidden_layer(options):
    class NoisyBelow(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.above = nn.Linear(3, 4).double(), network(features=4)

        def forward(self, x):
            return self.above(self.first(x * torch.randn(3, dtype=x.dtype)))

    model, inputs, found = NoisyBelow(), points(30), []
    for state_of_the_world in (1, 2):
        torch.manual_seed(state_of_the_world)
        found.append(explain(model, Stochastic(), inputs, layer="first", seed=7, **options))
    assert np.array_equal(found[0].labels, found[1].labels)
    assert np.array_equal(found[0].signed, found[1].signed)


# One's own


class Tempered:
    """A user's own posterior, in a few lines: the sharpness of the activations is drawn."""

    def draws(self, model, n, seed):
        generator = np.random.default_rng(seed)
        for _ in range(n):
            yield self.sharpened(model, 0.5 + generator.random())

    @contextmanager
    def sharpened(self, model, factor):
        handle = model[0].register_forward_hook(lambda module, args, out: factor * out)
        yield
        handle.remove()


@pytest.mark.parametrize("layer", [None, "0"])
def test_a_posterior_of_ones_own_is_one_small_class(layer):
    model, inputs = network(), with_twins()
    hessians = local_hessians(model, inputs, Tempered(), layer)
    assert same(hessians[:, 0], hessians[:, 3])
    assert len(np.unique(hessians[:, 0].round(12), axis=0)) == 6
    assert len(model[0]._forward_hooks) == 0


def test_a_posterior_of_ones_own_gives_the_draws_it_says():
    model, inputs = network(), points()
    factors = [0.5 + value for value in np.random.default_rng(3).random(4)]
    draws = local_hessians(model, inputs, Tempered(), draws=4, seed=3)
    for found, factor in zip(draws, factors, strict=True):
        by_hand = nn.Sequential(model[0], Times(factor), *model[1:])
        assert same(found, local_hessians(by_hand, inputs, PointEstimate())[0])


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def test_a_posterior_of_ones_own_can_say_that_hidden_units_do_not_correspond():
    class Unaligned(Tempered):
        inputs_only = True

    assert len(explain(network(), Unaligned()).signed) == 4
    with pytest.raises(geh.GEHError, match="do not correspond"):
        geh.GEHExplainer(network(), "0", posterior=Unaligned())


class Returning:
    def __init__(self, draws):
        self._draws = draws

    def draws(self, model, n, seed):
        return self._draws


@pytest.mark.parametrize("draws", [[], None, [1, 2], iter(())], ids=["no draws", "None", "numbers", "empty iterator"])
def test_a_posterior_of_ones_own_that_yields_no_draws_is_refused_in_words(draws):
    with pytest.raises(geh.GEHError, match=r"posterior.*draws"):
        explain(network(), Returning(draws))
