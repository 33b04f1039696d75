"""Files, names, data, clusterers, models and surroundings that nobody would choose."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import matplotlib
from expected_errors import ROWS, valid_points
from explaining import explain_draws, explain_point, random_points
from networks import mlp

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, KMeans
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate, WeightSamples


def network(columns: int = 3) -> nn.Module:
    return mlp(columns, 8, 8, 1, dropout=0.3, dtype=torch.float)


# Data


def test_a_single_point_is_explained():
    x = valid_points(1)
    hessian = torch.autograd.functional.hessian(lambda x: network().eval()(x[None]).squeeze(), x[0]).abs().numpy()
    for groups in (1, "auto"):
        result = explain_point(network(), x, groups=groups)
        for scores in (result.geh, result.aeh, result.eah):
            assert scores.mean == pytest.approx(hessian * (1 - np.eye(3)), rel=1e-4, abs=1e-7)
        assert (result.labels.tolist(), result.group_names) == ([0], ["0"])
    assert not explain_point(network(), x, scale="std", groups=1).geh.mean.any()
    assert geh.GEHExplainer(network(), posterior=PointEstimate()).choose_groups(x, progress=False).chosen == 1


def test_a_single_point_is_drawn_and_told(tmp_path):
    result = explain_draws(network(), valid_points(1), groups=1, posterior=MCDropout())
    assert "1 point" in result.report(tmp_path / "page.html").read_text()
    result.plot.heatmap()
    result.plot.regions(0, 1)
    plt.close("all")


def test_two_units_are_one_pair(tmp_path):
    result = explain_draws(
        network(2), random_points(ROWS, 2, seed=1, dtype=torch.float), posterior=MCDropout(), groups="auto"
    )
    assert result.geh.draws.shape == (4, 1)
    assert len(result.table()) == 1
    assert geh.Interactions.load(result.save(tmp_path / "pair")).table().equals(result.table())
    assert result.report(tmp_path / "page.html").is_file()
    for plot in (result.plot.heatmap, result.plot.intervals, result.plot.network):
        plot()
    plt.close("all")


@pytest.mark.parametrize(("units", "options"), [(200_000, {}), (2000, {"memory": 0.01})])
def test_more_pairs_than_fit_are_refused_with_a_way_out(units, options):
    with pytest.raises(geh.GEHError, match=rf"{units:,} units .* memory .*units=explainer\.screen\(inputs\)"):
        explain_point(lambda x: x.sum(1) ** 2, torch.zeros(2, units), groups=1, **options)


class Steep(nn.Module):
    """Overflows half precision: what it sums up is larger than 65504."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.gain = (
            nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)),
            nn.Parameter(torch.tensor(6e4)),
        )

    def forward(self, x):
        return self.gain * (10 + self.net(x))


def test_a_half_precision_model_that_overflows_is_explained_in_single_precision():
    model = Steep().half()
    assert not torch.isfinite(model(valid_points().half())).any()
    with pytest.warns(geh.GEHWarning, match="float16"):
        result = explain_point(model, valid_points().half(), groups=2)
    expected = explain_point(Steep().half().float(), valid_points().half().float(), groups=2)
    assert result.signed == pytest.approx(expected.signed, rel=1e-4)
    assert result.geh.mean.any()
    assert model.gain.dtype == torch.float16


def test_half_precision_inside_a_forward_that_overflows_is_refused():
    with pytest.raises(geh.GEHError, match="NaN or infinite"):
        explain_point(lambda x: (x * 1e4).half().prod(1), valid_points(), groups=2)


@pytest.mark.parametrize("groups", [1, 2, "auto"])
def test_a_constant_feature_has_no_spread_and_an_interaction_all_the_same(groups):
    x = valid_points()
    x[:, 2] = 7.0
    scaled, plain = (explain_point(lambda x: x.prod(1), x, groups=groups, scale=scale) for scale in ("std", None))
    assert np.isfinite(scaled.signed).all()
    assert scaled.geh.mean[0, 1] > 0
    assert not scaled.geh.mean[2].any()
    assert plain.aeh.mean[0, 1] == pytest.approx(7.0)


def test_points_that_are_all_the_same_are_one_group():
    x = valid_points(1).repeat(ROWS, 1)
    result = explain_point(network(), x, groups="auto")
    assert len(result.group_names) == 1
    assert result.geh.mean == pytest.approx(explain_point(network(), x[:1], groups=1).geh.mean, rel=1e-5, abs=1e-8)
    with pytest.raises(geh.GEHError, match="1 distinct"):
        explain_point(network(), x, groups=2)


def test_duplicates_of_all_points_change_nothing():
    once, thrice = (explain_point(network(), x, groups=2) for x in (valid_points(), valid_points().repeat(3, 1)))
    for measure in ("geh", "aeh", "eah"):
        assert thrice.scores(measure).mean == pytest.approx(once.scores(measure).mean, rel=1e-5, abs=1e-8)
    assert thrice.sizes.tolist() == (3 * once.sizes).tolist()


# Clusterers


class Clusterer(ClusterMixin, BaseEstimator):
    """Gives back the labels it was made with."""

    def __init__(self, labels=None):
        self.labels = labels

    def fit_predict(self, X, y=None):
        return self.labels


def clustered(labels) -> geh.Interactions:
    return explain_point(network(), valid_points(), groups=Clusterer(labels))


def test_labels_that_no_point_has_are_no_groups():
    result = clustered(np.arange(ROWS) % 2 * 5)
    assert (result.group_names, result.sizes.tolist()) == (["0", "5"], [ROWS // 2] * 2)
    assert result.signed == pytest.approx(explain_point(network(), valid_points(), groups=np.arange(ROWS) % 2).signed)


def test_points_without_a_cluster_are_a_group_of_their_own():
    result = clustered(np.arange(ROWS) % 3 - 1)
    assert (result.group_names, result.sizes.tolist()) == (["-1", "0", "1"], [ROWS // 3] * 3)
    crowd = torch.cat([valid_points(20) * 0.01, 50 + valid_points(4) * 20])
    found = explain_point(network(), crowd, groups=DBSCAN(eps=1.0, min_samples=3))
    assert "-1" in found.group_names
    assert found.sizes.sum() == len(crowd)
    assert (found.sizes > 0).all()


@pytest.mark.parametrize("kind", [float, np.float32, np.uint8, str, bool, object, list])
def test_labels_may_be_of_any_kind(kind):
    labels = (np.arange(ROWS) % 2).tolist() if kind is list else (np.arange(ROWS) % 2).astype(kind)
    result = clustered(labels)
    assert result.sizes.tolist() == [ROWS // 2] * 2
    assert result.signed == pytest.approx(explain_point(network(), valid_points(), groups=np.arange(ROWS) % 2).signed)


@pytest.mark.parametrize(
    "labels",
    [
        *(np.zeros(ROWS - 1), np.zeros(ROWS + 1), np.zeros(0), np.zeros((ROWS, 1)), np.full(ROWS, np.nan)),
        *([None] * ROWS, np.array(3), None, 3, [[0], [1, 2]] * (ROWS // 2)),
    ],
    ids=["too few", "too many", "none", "a column", "NaN", "missing", "a number", "nothing", "an int", "ragged"],
)
def test_a_clusterer_whose_labels_do_not_fit_is_refused(labels):
    with pytest.raises(geh.GEHError, match="groups"):
        clustered(labels)


def test_a_clusterer_that_fails_is_refused_in_words():
    with pytest.raises(geh.GEHError, match=r"groups=KMeans.*n_samples=3"):
        explain_point(network(), valid_points(3), groups=KMeans(5))


# Models that change while they run


class Changing(nn.Module):
    """A network that does something else in each forward, too."""

    def __init__(self, change):
        super().__init__()
        self.net, self.change = network(), change
        self.register_buffer("count", torch.zeros(()))
        self.seen, self.kept = [], None

    def forward(self, x):
        hidden = self.net[0](x)
        self.change(self, x, hidden)
        return self.net[1:](hidden)


CHANGES = {
    "counts": lambda self, x, hidden: self.count.add_(1),
    "replaces its counter": lambda self, x, hidden: setattr(self, "count", self.count + 1),
    "appends to a list": lambda self, x, hidden: self.seen.append(len(x)),
    "keeps its activations": lambda self, x, hidden: setattr(self, "kept", hidden),
    "keeps what it is called with": lambda self, x, hidden: self.seen.append(x),
    "freezes its weights": lambda self, x, hidden: self.requires_grad_(False),
    "draws random numbers": lambda self, x, hidden: torch.rand(3),
}


@pytest.mark.parametrize("layer", [None, "net.1"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changes_in_its_forward_comes_back_as_it_was(change, training, layer):
    model = Changing(CHANGES[change]).train(training)
    tensors = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    random_state = torch.get_rng_state()
    expected = explain_draws(network(), valid_points(), layer=layer and "1", posterior=MCDropout(), groups=2)
    result = explain_draws(model, valid_points(), layer=layer, posterior=MCDropout(), groups=2)
    assert result.signed == pytest.approx(expected.signed, rel=1e-5, abs=1e-8)
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(tensors)
    for name, (tensor, value) in tensors.items():
        assert after[name] is tensor
        assert torch.equal(tensor, value)
    assert all(module.training == training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_batch_normalisation_in_train_mode_is_explained_with_its_running_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    model(valid_points(50))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    trained = explain_point(model.train(), valid_points(), groups=2)
    assert model[1].training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert np.array_equal(trained.signed, explain_point(model.eval(), valid_points(), groups=2).signed)


def test_a_model_whose_answer_depends_on_how_often_it_was_asked_is_refused():
    class Tiring(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x.prod(1) * self.count

    model = Tiring()
    with pytest.raises(geh.GEHError, match="not one function"):
        explain_point(model, valid_points(), groups=2)
    assert model.count == 0


def test_a_model_that_fills_a_table_in_its_first_forward_works_on():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.table = network(), None

        def forward(self, x):
            if self.table is None:
                self.table = self.net[0].weight.sum() * torch.arange(1.0, 4.0)
            return self.net(x * self.table)

    model = Remembering()
    with torch.inference_mode():
        first = explain_draws(model, valid_points(), posterior=MCDropout(), groups=2)
    second = explain_draws(model, valid_points(), posterior=MCDropout(), groups=2)
    assert np.array_equal(first.signed, second.signed)
    model(valid_points()).sum().backward()


# Surroundings


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def autocast() -> AbstractContextManager[None]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


SURROUNDINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "deterministic": deterministic,
    "autocast": autocast,
    "double_by_default": double_by_default,
}
ENGINES = ["exact", "structured", "difference", "stein"]


@pytest.mark.parametrize("posterior", [PointEstimate(), MCDropout()], ids=["point", "dropout"])
@pytest.mark.parametrize("layer", [None, "1"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_the_numbers_do_not_depend_on_the_surroundings(surroundings, engine, layer, posterior):
    model, x = network(), valid_points()
    expected = explain_draws(model, x, engine=engine, posterior=posterior, layer=layer, groups=2)
    with SURROUNDINGS[surroundings]():
        result = explain_draws(model, x, engine=engine, posterior=posterior, layer=layer, groups=2)
    scale = np.abs(expected.signed).max()
    assert result.signed == pytest.approx(expected.signed, rel=1e-5, abs=1e-5 * scale)
    assert result.absolute == pytest.approx(expected.absolute, rel=1e-5, abs=1e-5 * scale)


def samples(model: nn.Module) -> WeightSamples:
    return WeightSamples([{name: w * (1 + k / 10) for name, w in model.state_dict().items()} for k in range(4)])


@pytest.mark.parametrize("layer", [None, "1"])
@pytest.mark.parametrize("kind", ["point", "dropout", "weights"])
def test_threads_that_explain_one_model_at_once_get_what_they_get_one_after_the_other(kind, layer):
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    posterior = {"point": PointEstimate(), "dropout": MCDropout(), "weights": samples(model)}[kind]
    inputs = [valid_points() + shift for shift in range(3)]
    expected = [explain_draws(model, x, posterior=posterior, layer=layer, groups=2).signed for x in inputs]
    random_state, found, start = torch.get_rng_state(), [], threading.Barrier(len(inputs))

    def work(number: int) -> None:
        start.wait()
        for _ in range(5):
            try:
                result = explain_draws(model, inputs[number], posterior=posterior, layer=layer, groups=2).signed
                found.append(bool(np.array_equal(result, expected[number])))
            except Exception as error:
                found.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 15
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("place", ["the model", "a part of it", "the data", "both", "the data of a callable"])
def test_tensors_without_values_are_refused(place):
    model, x = network(), valid_points()
    if place in ("the model", "both"):
        model = model.to("meta")
    if place == "a part of it":
        model[3].to("meta")
    if place.startswith("the data") or place == "both":
        x = x.to("meta")
    with pytest.raises(geh.GEHError, match="meta"):
        explain_point((lambda x: x.prod(1)) if "callable" in place else model, x, groups=2)
