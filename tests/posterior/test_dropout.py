"""MCDropout: one mask per draw, the same for all rows, and another one in the next draw."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, random_points
from posterior_cases import dropping, local_hessians, same, with_twins
from torch import nn

from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


# Masks of every kind of dropout


class Functional(nn.Module):
    """Calls a dropout function as models do."""

    def __init__(self, drop):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(3, 12).double(), nn.Linear(12, 1).double(), drop

    def forward(self, x):
        return self.last(torch.tanh(self.drop(self.first(x), self.training)))


class Maps(nn.Module):
    """Maps rows to (n, channels, ...) with ``rank`` further dimensions, drops, and maps them to one output."""

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
    """Yield, for each draw, the input and the output of a dropout module and the output of the model for ``rows``."""
    for draw in MCDropout().draws(model, draws, seed):
        seen = []
        with draw, torch.no_grad():
            model(rows[:1])
            handle = module.register_forward_hook(lambda m, args, out, seen=seen: seen.append((args[0], out)))
            output = model(rows)
            handle.remove()
        yield (*seen[0], output)


def test_a_draw_is_the_network_with_the_mask_applied_by_hand():
    model, rows, p = dropping(p=0.3, hidden=10), random_points(7, 3), 0.3
    model.eval()
    for before, after, output in masks_of(model, model[2], rows, draws=5):
        mask = (after[0] != 0).double()
        assert 0 < mask.sum() < 10
        assert torch.allclose(after, before * mask / (1 - p), rtol=1e-14)
        by_hand = model[5](torch.tanh(model[3](torch.tanh(model[0](rows)) * mask / (1 - p))))
        assert torch.allclose(output, by_hand, rtol=1e-14)


def test_the_hessians_of_a_draw_are_those_of_the_network_with_the_mask_applied_by_hand():
    model, rows, p = dropping(p=0.3), random_points(5, 3), 0.3
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
    for before, after, _ in masks_of(model, model.drop, random_points(4, 3), draws=5):
        share = (after / before).flatten(2)
        assert torch.equal(share, share[:1, :, :1].expand_as(share))
        assert set(share.unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("drop", [nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)])
def test_alpha_dropout_is_what_torch_does_in_train_mode(drop):
    model = Maps(drop, 1).eval()
    kept, dropped = set(), set()
    for before, after, _ in masks_of(model, drop, random_points(3, 3), draws=20):
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
    rows = random_points(5, 3)
    outputs = torch.stack([output for *_, output in masks_of(model, model[2], rows, draws=1500)]).squeeze(2)
    error = outputs.std(0) / 1500**0.5
    assert bool((error > 0).all())
    assert bool(((outputs.mean(0) - model(rows).detach().squeeze(1)).abs() < 4.5 * error).all())


def test_nodes_are_dropped_with_the_probability_that_the_layer_says():
    model = dropping(p=0.2, hidden=50).eval()
    dropped = [(after[0] == 0).double() for _, after, _ in masks_of(model, model[2], random_points(2, 3), draws=200)]
    assert abs(float(torch.stack(dropped).mean()) - 0.2) < 4.5 * (0.2 * 0.8 / 10_000) ** 0.5


def test_several_dropouts_have_masks_of_their_own():
    drop = nn.Dropout(0.5)  # one module called twice must not reuse its first mask
    model = nn.Sequential(nn.Linear(3, 40), drop, nn.Linear(40, 40), drop, nn.Tanh(), nn.Linear(40, 1)).double().eval()
    seen = []
    with next(MCDropout().draws(model, 1, 0)), torch.no_grad():
        model(random_points(1, 3))
        drop.register_forward_hook(lambda module, args, out: seen.append(out[0] == 0))
        model(random_points(3, 3))
    assert len(seen) == 2
    assert not torch.equal(seen[0], seen[1])


def test_batch_normalisation_stays_in_eval():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 1)).double()
    with torch.no_grad():
        for _ in range(3):
            model(random_points(30, 3))
    statistics = model[1].running_mean.clone(), model[1].running_var.clone(), int(model[1].num_batches_tracked)
    inputs = with_twins()
    hessians = local_hessians(model.train(), inputs, MCDropout())
    assert torch.equal(model[1].running_mean, statistics[0])
    assert torch.equal(model[1].running_var, statistics[1])
    assert int(model[1].num_batches_tracked) == statistics[2]
    # A row's Hessian does not depend on the other rows.
    assert same(hessians[:, :2], local_hessians(model, inputs[:2], MCDropout()))
    assert same(hessians[:, :1], local_hessians(model, inputs[:1], MCDropout()))


def test_more_dropout_means_more_spread():
    torch.manual_seed(1)
    model = dropping(p=0.1, hidden=20)
    little = explain_draws(model, random_points(20, 3), draws=60, groups=2).geh.std[0, 1]
    model[2].p = 0.5
    assert explain_draws(model, random_points(20, 3), draws=60, groups=2).geh.std[0, 1] > little > 0


# Attention


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True), nn.Linear(4, 1)
        self.double()

    def forward(self, x):
        return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))


class BareAttention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).mean((1, 2))


@pytest.mark.parametrize("make", [Attention, BareAttention], ids=["module", "function"])
def test_dropout_inside_attention_is_shared_by_rows(make):
    hessians = local_hessians(make(), with_twins((3, 4)), MCDropout())
    assert same(hessians[:, 0], hessians[:, 3], rtol=1e-8)
    assert hessians[:, 0].std(0).any()


def test_dropout_inside_attention_is_drawn_beside_other_dropout():
    encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, activation="gelu", batch_first=True).double()
    model, inputs = nn.Sequential(encoder, nn.Flatten(), nn.Linear(12, 1).double()), random_points(2, 3, 4)
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
