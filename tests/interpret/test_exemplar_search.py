"""Exemplars equal those of a brute-force search, for any batch size and any kind of candidates."""

from functools import cache

import numpy as np
import pytest
import torch
from explaining import random_points
from state_comparison import model_state
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import geh_explain as geh
from geh_explain.interpret import exemplars


@cache
def table_rows():
    """Return candidates (100, 5) in single precision."""
    return random_points(100, 5, seed=1, dtype=torch.float)


@cache
def images():
    """Return candidate images (60, 1, 6, 6) in single precision."""
    return random_points(60, 1, 6, 6, seed=2, dtype=torch.float)


@pytest.fixture(scope="module")
def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1)).eval()


@pytest.fixture(scope="module")
def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 1)).eval()


def brute_force(values, k):
    """Return the k largest of each column, ties by index."""
    order = np.argsort(-values, axis=0, kind="stable")[:k].T
    return order, np.take_along_axis(values, order.T, axis=0).T


@pytest.mark.parametrize("batch_size", [1, 3, 7, 64, 100, 1000, None])
@pytest.mark.parametrize("layer", ["0", "1"])
def test_exemplars_equal_a_brute_force_search(mlp, batch_size, layer):
    with torch.no_grad():
        values = mlp[: int(layer) + 1](table_rows()).double().numpy()
    best = exemplars(mlp, layer, None, table_rows(), k=6, batch_size=batch_size, progress=False)
    indices, scores = brute_force(values, 6)
    assert best.indices.tolist() == indices.tolist()
    np.testing.assert_allclose(best.scores, scores, rtol=1e-6)
    assert torch.equal(best.inputs, table_rows()[torch.as_tensor(indices)])


def test_ties_are_resolved_in_favour_of_earlier_candidates():
    rows = torch.ones(50, 5)
    rows[30:] = 2.0
    net = nn.Linear(5, 2)
    nn.init.constant_(net.weight, 1.0)
    best = exemplars(nn.Sequential(net), "0", [0], rows, k=4, batch_size=7, progress=False)
    assert best.indices.tolist() == [[30, 31, 32, 33]]


def test_the_lowest_activations(mlp):
    low = exemplars(mlp, "0", [2], table_rows(), k=5, lowest=True, progress=False)
    with torch.no_grad():
        values = mlp[0](table_rows())[:, 2]
    assert low.indices[0].tolist() == torch.argsort(values)[:5].tolist()
    np.testing.assert_allclose(low.scores[0], values.sort().values[:5], rtol=1e-6)


@pytest.mark.parametrize("reduce", ["max", "mean"])
@pytest.mark.parametrize("units", [[3, 1], geh.units.Subset([1, 0], geh.units.Subset([1, 3]))], ids=["list", "subset"])
def test_maps_are_reduced_and_places_are_positions_of_the_maximum(cnn, reduce, units):
    best = exemplars(cnn, "0", units, images(), k=3, reduce=reduce, batch_size=8, progress=False)
    with torch.no_grad():
        maps = cnn[0](images())[:, [3, 1]]
    values = maps.amax(dim=(2, 3)) if reduce == "max" else maps.mean(dim=(2, 3))
    assert best.indices.tolist() == brute_force(values.double().numpy(), 3)[0].tolist()
    if reduce == "mean":
        assert best.places is None
        return
    for unit in range(2):
        for number, index in enumerate(best.indices[unit]):
            row, column = best.places[unit, number]
            assert maps[index, unit, row, column] == maps[index, unit].max()


def test_units_other_than_channels_are_reduced_over_their_members(cnn):
    best = exemplars(cnn, "0", geh.units.Patches(2), images(), k=2, progress=False)
    with torch.no_grad():
        maps = cnn[0](images())
    corner = maps[:, :, :2, :2].flatten(1)
    assert best.indices[0].tolist() == corner.amax(dim=1).argsort(descending=True)[:2].tolist()
    assert best.places is None
    mean = exemplars(cnn, "0", geh.units.Patches(2), images(), k=1, reduce="mean", progress=False)
    assert mean.scores[0, 0] == pytest.approx(float(corner.mean(dim=1).max()), rel=1e-5)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(table_rows())


@pytest.mark.parametrize(
    "candidates_of",
    [
        lambda rows: rows.numpy(),
        lambda rows: TensorDataset(rows, torch.arange(100)),
        lambda rows: DataLoader(TensorDataset(rows, torch.arange(100)), batch_size=9),
        lambda rows: DataLoader(TensorDataset(rows), batch_size=9, shuffle=True),
        lambda rows: DataLoader(Stream(), batch_size=13),
    ],
    ids=["ndarray", "dataset", "loader", "shuffled loader", "stream"],
)
def test_candidates_of_all_kinds(mlp, candidates_of):
    best = exemplars(mlp, "0", None, candidates_of(table_rows()), k=3, progress=False)
    assert best.indices.tolist() == exemplars(mlp, "0", None, table_rows(), k=3, progress=False).indices.tolist()


def test_a_loader_is_read_once(mlp):
    passes = []

    class Counted(IterableDataset):
        def __iter__(self):
            passes.append(1)
            return iter(table_rows())

    exemplars(mlp, "0", None, DataLoader(Counted(), batch_size=10), progress=False)
    assert len(passes) == 1


def test_an_expert_adds_its_log_density(mlp):
    def expert(x):
        return -3.0 * x[:, 0] ** 2

    best = exemplars(mlp, "0", [1], table_rows(), k=5, expert=expert, progress=False)
    with torch.no_grad():
        values = mlp[0](table_rows())[:, 1] + expert(table_rows())
    assert best.indices[0].tolist() == values.argsort(descending=True)[:5].tolist()


def test_an_expert_may_exclude_candidates(mlp):
    allowed = torch.where(table_rows()[:, 0] > 0, 0.0, -torch.inf)
    best = exemplars(
        mlp, "0", [1], table_rows(), k=5, expert=lambda x: torch.where(x[:, 0] > 0, 0.0, -torch.inf), progress=False
    )
    assert all(allowed[index] == 0 for index in best.indices[0])


def test_dropout_is_off_and_the_model_is_unchanged():
    net = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 1)).train()
    before = model_state(net)
    state = torch.get_rng_state()
    one, two = (exemplars(net, "1", None, table_rows(), k=3, progress=False) for _ in range(2))
    assert one.indices.tolist() == two.indices.tolist()
    assert model_state(net) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(5, 3)

        def forward(self, a, b):
            return self.first(a + b).sum(1)

    torch.manual_seed(0)
    net = Two().eval()
    best = exemplars(net, "first", None, (table_rows(), 2 * table_rows()), k=2, progress=False)
    assert torch.equal(best.inputs[1], 2 * best.inputs[0])


WRONG = {
    "unknown unit": ({"units": [9]}, ValueError, "there are 7 units"),
    "unknown layer": ({"layer": "fc9"}, ValueError, "layer='fc9'"),
    "the inputs": ({"layer": None}, TypeError, "name a hidden layer"),
    "words for units": ({"units": "all"}, TypeError, "units='all'"),
    "k too large": ({"k": 101}, ValueError, "k=101, but there are only 100 candidates"),
    "k of 0": ({"k": 0}, ValueError, "k=0"),
    "wrong shape": ({"candidates": torch.zeros(20, 4)}, RuntimeError, r"candidates: the model does not take .*\(4,\)"),
    "no candidates": ({"candidates": torch.zeros(0, 5), "k": 1}, ValueError, "candidates are empty"),
    "a strict expert": ({"expert": lambda x: -x[:, 0].abs() / 0}, ValueError, "expert: its log density is -inf"),
    "NaN": ({"candidates": torch.full((20, 5), torch.nan)}, ValueError, "candidates: 20 of 20 rows have NaN"),
    "unknown reduce": ({"reduce": "median"}, ValueError, "reduce='median'"),
    "NaN from an expert": ({"expert": lambda x: x[:, 0] / 0 * 0}, RuntimeError, "expert: its log density is NaN"),
    "an expert for the batch": ({"expert": lambda x: x.sum()}, TypeError, "one log density each"),
    "no expert": ({"expert": 3}, TypeError, "expert=3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise(mlp, name):
    change, kind, words = WRONG[name]
    arguments = {"layer": "0", "units": None, "candidates": table_rows(), "k": 9} | change
    with pytest.raises(kind, match=words) as raised:
        exemplars(mlp, **arguments, progress=False)
    assert isinstance(raised.value, geh.GEHError)


def test_a_stream_with_fewer_rows_than_k_raises(mlp):
    with pytest.raises(ValueError, match="k=101, but there are only 100"):
        exemplars(mlp, "0", None, DataLoader(Stream(), batch_size=13), k=101, progress=False)


def test_dead_units_are_reported():
    net = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        net[0].bias[1] = -1e3
    with pytest.warns(geh.GEHWarning, match=r"units: 1\[1\] gave the same value for every candidate"):
        best = exemplars(net, "1", None, table_rows(), k=3, progress=False)
    assert best.dead.tolist() == [False, True, False]
    with pytest.raises(ValueError, match="choose other units"):
        exemplars(net, "1", 1, table_rows(), k=3, progress=False)


def test_readings_are_the_majority_labels_of_the_exemplars(mlp):
    best = exemplars(mlp, "0", [0, 1], table_rows(), k=5, progress=False)
    labels = np.where(np.isin(np.arange(100), best.indices[0][:3]), "yes", "no")
    assert str(best.reading(labels)[0]) == "yes, 3 of 5"


def test_the_repr_is_short(mlp):
    best = exemplars(mlp, "0", None, table_rows(), k=4, progress=False)
    assert repr(best) == "Exemplars(7 units, 4 of 100 candidates each, inputs (7, 4, 5))"


def test_labels_must_cover_the_candidates(mlp):
    best = exemplars(mlp, "0", [0], table_rows(), k=9, progress=False)
    for wrong in (["a", "b"], ["a"] * 101, "a" * 100, None):
        with pytest.raises(geh.GEHError, match="labels"):
            best.reading(wrong)


def test_a_loader_with_a_custom_sampler_warns_about_the_order(mlp):
    loader = DataLoader(TensorDataset(table_rows()), batch_size=9, sampler=range(50, 100))
    with pytest.warns(geh.GEHWarning, match="the order in which it yields rows"):
        best = exemplars(mlp, "0", [0], loader, k=3, progress=False)
    assert torch.equal(best.inputs[0], table_rows()[50:][best.indices[0]])


def test_an_expert_does_not_hide_a_dead_unit():
    net = nn.Sequential(nn.Linear(5, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        net[0].bias[1] = -1e3
    with pytest.warns(geh.GEHWarning, match=r"units: 1\[1\]"):
        best = exemplars(net, "1", None, table_rows(), k=3, expert=lambda x: x[:, 0], progress=False)
    assert best.dead.tolist() == [False, True]


@pytest.mark.parametrize("units", [1, np.int64(1), torch.tensor(1), range(1, 2), np.array([1]), torch.tensor([1])])
def test_units_may_be_integers_of_any_kind(mlp, units):
    best = exemplars(mlp, "0", units, table_rows(), k=3, progress=False)
    assert best.names == ["0[1]"]


def test_channels_of_a_flat_layer_are_its_neurons(mlp):
    best = exemplars(mlp, "0", geh.units.Channels(), table_rows(), k=3, progress=False)
    assert best.indices.tolist() == exemplars(mlp, "0", None, table_rows(), k=3, progress=False).indices.tolist()


@pytest.mark.parametrize("units", [geh.units.Tokens(), geh.units.Heads(2)])
def test_members_agree_with_the_general_definition(units):
    x = torch.randn(6, 4, 8)
    fast, slow = units.members(x), geh.units.Units.members(units, x)
    torch.testing.assert_close(fast.amax(dim=2), slow.amax(dim=2))
    torch.testing.assert_close(fast.sum(dim=2), slow.masked_fill(slow == -torch.inf, 0).sum(dim=2))
