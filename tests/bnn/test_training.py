"""Fitting: it learns, is reproducible, keeps the best weights, also when interrupted, and refuses unusable data."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.bnn import HybridNet, fit, fit_ensemble
from geh_explain.bnn.hybrid import FeatureNetworks

pytestmark = pytest.mark.usefixtures("seeded")


def table(rows=600, columns=4, seed=0):
    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed))
    return x, 4 * x[:, 0] * x[:, 1] + torch.sin(3 * x[:, 2])


def quiet(net, x, y, **options):
    return fit(net, x, y, **{"progress": False, "epochs": 5, **options})


def test_a_hybrid_network_finds_the_true_pairs():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (3000, 5))
    y = 3 * x[:, 0] * x[:, 1] + 2 * np.sin(np.pi * x[:, 2]) * x[:, 3] + x[:, 4] + 0.1 * rng.standard_normal(3000)
    net = HybridNet(5, hidden=(40, 40))
    history = fit(net, x, y, epochs=40, progress=False)
    assert history.noise == pytest.approx(0.1, rel=0.25)
    result = geh.GEHExplainer(net).explain(x[:500].astype(np.float32), groups=5, draws=30, progress=False)
    assert set(result.ranking().top(2)) == {("x0", "x1"), ("x2", "x3")}
    assert result.geh.mean[0, 1] == pytest.approx(3, rel=0.2)


@pytest.mark.parametrize("weights", ["dropout", "gaussian", "point"])
@pytest.mark.parametrize("main", ["linear", "network", None])
def test_all_kinds_of_networks_learn(weights, main):
    x, y = table()
    net = HybridNet(4, hidden=(30,), weights=weights, main=main)
    history = quiet(net, x, y, epochs=30)
    assert history.best < 0.4 * float(y.std())
    assert not net.training


def test_main_effects_have_no_interactions():
    net = FeatureNetworks(3, 1, nn.Tanh)
    hessian = torch.func.hessian(lambda x: net(x[None])[0, 0])(torch.randn(3))
    assert hessian.diagonal().abs().min() > 0
    assert torch.equal(hessian, torch.diag(hessian.diagonal()))


def test_raw_tables_are_scaled_inside_the_network():
    x, y = table()
    frame = pd.DataFrame({"income": 1e5 * x[:, 0] - 3e4, "age": 90 * x[:, 1], "a": x[:, 2], "b": x[:, 3]})
    net, other = HybridNet(4, hidden=(20,)), HybridNet(4, hidden=(20,))
    quiet(net, frame, 1000 * y + 7, epochs=8)
    quiet(other, x, y, epochs=8)
    given = torch.tensor(frame.to_numpy(), dtype=torch.float32)
    torch.testing.assert_close((net(given) - 7) / 1000, other(x), rtol=1e-3, atol=1e-3)


def test_integer_tables_and_read_only_columns_are_accepted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 9, 80), "b": rng.integers(0, 9, 80)})
    frame["y"] = frame["a"] * frame["b"] * 0.5
    x, y = frame[["a", "b"]], frame["y"]
    net, same = (HybridNet(2, hidden=(5,), seed=0) for _ in range(2))
    quiet(net, x, y, epochs=2)
    quiet(same, torch.tensor(x.to_numpy(), dtype=torch.float), torch.tensor(y.to_numpy(), dtype=torch.float), epochs=2)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), same.parameters(), strict=True))
    of_frame, of_tensor = (
        geh.GEHExplainer(net).diagnose(rows, y=y, draws=3, progress=False)
        for rows in (x.astype(float), torch.tensor(x.to_numpy(), dtype=torch.float))
    )
    assert of_frame.errors == pytest.approx(of_tensor.errors)


def test_the_same_seed_gives_the_same_network_and_leaves_the_generators_alone():
    x, y = table()
    state = torch.get_rng_state()
    nets = [HybridNet(4, hidden=(10,), seed=5) for _ in range(2)]
    histories = [quiet(net, x, y, seed=5) for net in nets]
    assert histories[0].validation == histories[1].validation
    assert all(torch.equal(a, b) for a, b in zip(*(net.state_dict().values() for net in nets), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert quiet(HybridNet(4, hidden=(10,), seed=5), x, y, seed=6).validation != histories[0].validation


def test_the_weights_kept_are_those_of_the_best_epoch():
    x, y = table(200)
    net, held_out = HybridNet(4, hidden=(50, 50), weights="point"), table(300, seed=1)
    history = quiet(net, x, y, validation=held_out, epochs=30, lr=0.02)
    with torch.no_grad():
        error = (net(held_out[0])[:, 0] - held_out[1]).square().mean().sqrt()
    assert history.best == min(history.validation)
    assert float(error) == pytest.approx(history.best, rel=1e-4)


def test_training_stops_when_nothing_gets_better():
    x = torch.rand(100, 4)
    history = quiet(HybridNet(4, hidden=(50, 50), weights="point"), x, torch.randn(100), epochs=200, patience=3)
    assert len(history.train) == history.best_epoch + 4 < 200


def test_no_epoch_is_best_before_the_prior_has_its_full_weight():
    # The targets of the held-out rows are reversed, so learning makes their error larger.
    x, y = table(300)
    history = quiet(HybridNet(4, hidden=(50, 50)), x, y, validation=(x, -y), epochs=40, patience=5)
    assert min(history.validation[:10]) < min(history.validation[10:])
    assert history.best_epoch >= 10
    assert history.best == min(history.validation[10:])
    assert len(history.validation) == min(40, history.best_epoch + 6)


def test_in_a_short_training_the_weight_of_the_prior_grows_over_two_thirds_of_it():
    x, y = table(200)
    history = quiet(HybridNet(4, hidden=(10,)), x, y, epochs=6)
    assert history.best == min(history.validation[4:])


def test_the_temperature_scales_the_prior():
    x, y = table(300)
    spreads, errors = [], []
    for temperature in (0.01, 1.0, 100.0):
        net = HybridNet(4, hidden=(20,), weights="gaussian", seed=0)
        history = quiet(net, x, y, epochs=30, lr=0.01, temperature=temperature)
        spreads.append(float(net.interactions[0].log_std.detach().mean()))
        errors.append(history.best)
    assert spreads == sorted(spreads)
    assert errors == sorted(errors)
    with pytest.raises(geh.GEHError, match="temperature=0 must be a positive number"):
        quiet(HybridNet(4, hidden=(3,)), x, y, temperature=0)


def test_an_interruption_keeps_the_best_weights_so_far():
    x, y = table()
    net = HybridNet(4, hidden=(10,))
    count = 0

    def interrupt(*_):
        nonlocal count
        count += 1
        if count == 60:
            raise KeyboardInterrupt

    handle = net.main.register_forward_hook(interrupt)
    with pytest.warns(geh.GEHWarning, match="interrupted in epoch [0-9]+; the weights of epoch [0-9]+ are kept"):
        history = quiet(net, x, y, epochs=50)
    handle.remove()
    assert history.interrupted
    assert not net.training
    with torch.no_grad():
        assert torch.isfinite(net(x)).all()
    assert "interrupted" in repr(history)


def test_an_interrupted_ensemble_keeps_the_members_that_are_done():
    x, y = table(100)
    made = []

    def make(seed):
        made.append(HybridNet(4, hidden=(3,), seed=seed))
        if len(made) == 3:
            made[-1].main.register_forward_hook(interrupt)
        return made[-1]

    def interrupt(*_):
        raise KeyboardInterrupt

    with (
        pytest.warns(geh.GEHWarning, match="the 2 members before this one are kept"),
        pytest.warns(geh.GEHWarning, match="no epoch was finished"),
    ):
        assert fit_ensemble(make, x, y, 6, epochs=1, progress=False) == made[:2]


def test_two_classes_and_more_are_learned():
    x = torch.rand(800, 3) * 2 - 1
    two = (x[:, 0] * x[:, 1] > 0).long()
    net = HybridNet(3, hidden=(30,))
    assert quiet(net, x, two, epochs=60).task == "classification"
    assert ((net(x)[:, 0] > 0) == two.bool()).float().mean() > 0.9
    three = two + (x[:, 2] > 0.5).long()
    net = HybridNet(3, hidden=(30,), outputs=3)
    quiet(net, x, three.numpy(), epochs=60)
    assert (net(x).argmax(1) == three).float().mean() > 0.85


def test_whole_numbers_are_a_regression_where_there_is_one_output_and_many_of_them():
    x, _ = table()
    assert quiet(HybridNet(4, hidden=(5,)), x, (10 * x[:, 0]).round().long(), epochs=1).task == "regression"


def test_noise_that_depends_on_the_inputs_is_learned():
    x = torch.rand(4000, 2)
    y = x[:, 1] + (0.05 + x[:, 0]) * torch.randn(4000)
    net = HybridNet(2, hidden=(20,), outputs=2, weights="point")
    quiet(net, x, y, epochs=40, heteroscedastic=True)
    spread = (net(torch.tensor([[0.1, 0.5], [0.9, 0.5]]))[:, 1] / 2).exp().detach().numpy()
    assert spread == pytest.approx([0.15, 0.95], rel=0.25)


def test_any_network_can_be_fitted():
    images = torch.randn(300, 1, 6, 6)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    history = quiet(net, images, (images.mean((1, 2, 3)) > 0).long(), epochs=15)
    assert history.best < 0.6
    assert list(history.table().columns) == ["train", "validation"]


def test_learned_rates_are_low_for_important_features_and_screening_uses_them():
    x = torch.rand(3000, 6)
    y = 5 * x[:, 0] * x[:, 1] + 0.5 * torch.randn(3000)
    net = HybridNet(6, hidden=(30,))
    quiet(net, x, y, epochs=60, lr=0.01)
    rates = net.input_dropout_rates
    assert rates[:2].max() < rates[2:].min()
    torch.testing.assert_close(net.importance(), 1 - rates)
    assert sorted(geh.GEHExplainer(net).screen(x[:50], keep=2, progress=False).indices) == [0, 1]


def test_members_of_an_ensemble_have_different_rows_and_agree_on_the_strongest_pair():
    x, y = table(1500)
    nets = fit_ensemble(
        lambda seed: HybridNet(4, hidden=(30,), weights="point", seed=seed), x, y, 4, epochs=30, progress=False
    )
    explainer = geh.GEHExplainer(nets[0], posterior=geh.posterior.Ensemble(nets))
    result = explainer.explain(x[:200], groups=3, progress=False)
    assert result.geh.draws.shape == (4, 6)
    assert result.ranking().top(1) == [("x0", "x1")]
    assert len({tuple(net.low.tolist()) for net in nets}) > 1


@cache
def small_table():
    """Return the inputs (60, 4) and the target (60,) of a table."""
    return table(60)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: quiet(
                HybridNet(4), torch.where(small_table()[0] > 0.99, torch.nan, small_table()[0]), small_table()[1]
            ),
            "^X (is|are|has|have) NaN|^X.*NaN",
        ),
        (
            lambda: quiet(
                HybridNet(4), pd.DataFrame(small_table()[0].numpy()).assign(c=1.0)[[0, 1, 2, "c"]], small_table()[1]
            ),
            "column 'c' is the same",
        ),
        (lambda: quiet(HybridNet(4), small_table()[0], small_table()[1][:50]), "y has shape \\(50,\\) for 60 rows"),
        (
            lambda: quiet(HybridNet(4), small_table()[0], torch.stack([small_table()[1], small_table()[1]], 1)),
            "outputs=2",
        ),
        (lambda: quiet(HybridNet(4), small_table()[0], torch.full_like(small_table()[1], 2.0)), "the same in all rows"),
        (
            lambda: quiet(HybridNet(4), small_table()[0], small_table()[1].log() - 1e9 * torch.inf),
            "y is NaN or infinite in row",
        ),
        (lambda: quiet(HybridNet(4), small_table()[0], torch.zeros(60).long()), "one class only"),
        (lambda: quiet(HybridNet(4), small_table()[0], torch.arange(60) % 2 + 1), "count classes from 0"),
        (lambda: quiet(HybridNet(4), small_table()[0], np.array(["a", "b"] * 30)), "LabelEncoder"),
        (lambda: quiet(HybridNet(4), small_table()[0][:6], small_table()[1][:6]), "too few to hold"),
        (lambda: quiet(HybridNet(4), small_table()[0], small_table()[1], validation=1.5), "validation=1.5"),
        (lambda: quiet(HybridNet(4), small_table()[0], small_table()[1], lr=0), "lr=0"),
        (lambda: quiet(HybridNet(4), small_table()[0], small_table()[1], task="ranking"), "task='ranking'"),
        (lambda: quiet(HybridNet(3), small_table()[0], small_table()[1]), "the network takes \\(rows, 3\\)"),
        (
            lambda: quiet(HybridNet(4), small_table()[0], small_table()[1], heteroscedastic=True),
            "build it with outputs=2",
        ),
        (
            lambda: quiet(
                nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 1)), 1e6 * small_table()[0], small_table()[1], lr=1e30
            ),
            "training diverged at lr",
        ),
        (lambda: HybridNet(4, weights="laplace"), "weights='laplace'"),
        (lambda: HybridNet(4, main="cubic"), "main='cubic'"),
        (lambda: fit_ensemble(HybridNet(4), small_table()[0], small_table()[1]), "make must be a callable"),
    ],
)
def test_data_that_cannot_be_learned_are_refused(call, message):
    with pytest.raises(geh.GEHError, match=message):
        call()
