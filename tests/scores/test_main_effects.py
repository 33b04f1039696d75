"""Main effects are the mean gradients of the same draws, whatever the engine."""

from functools import cache

import numpy as np
import pytest
import torch
from explaining import random_points
from networks import mlp

import geh_explain as geh
from geh_explain.engines import Engine, EngineRun
from geh_explain.posterior import PointEstimate
from geh_explain.scores.draws import Draws


@cache
def four_features():
    """Return points (60, 4)."""
    return random_points(60, 4)


@cache
def sides():
    """Return the labels of two groups, by the sign of the first feature."""
    return (four_features()[:, 0] > 0).long().numpy()


def net():
    return mlp(4, 6, 5, 1, dropout=0.3)


def gradients(function, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0].numpy()


@pytest.mark.parametrize("engine", ["exact", "structured"])
def test_they_are_the_mean_gradients(engine):
    model = net().eval()
    result = geh.GEHExplainer(model, engine=engine, posterior=PointEstimate()).explain(
        four_features(), groups=sides(), progress=False
    )
    assert result.settings["engine"] == engine
    wanted = gradients(model, four_features())
    np.testing.assert_allclose(result.main.mean, wanted.mean(axis=0), rtol=1e-9, atol=1e-12)
    by_side = [np.abs(wanted[side == sides()].mean(axis=0)) * (side == sides()).mean() for side in (0, 1)]
    np.testing.assert_allclose(result.main.strength, sum(by_side), rtol=1e-9, atol=1e-12)
    assert np.isnan(result.main.std).all()


def test_differences_and_noise_come_near_them():
    model = net().eval()
    wanted = gradients(model, four_features()).mean(axis=0)
    for engine, room in ((geh.engines.Difference(step=0.01), 0.01), (geh.engines.Stein(noise=0.05, samples=20), 0.01)):
        explainer = geh.GEHExplainer(model, engine=engine, posterior=PointEstimate())
        found = explainer.explain(four_features(), groups=sides(), progress=False).main.mean
        np.testing.assert_allclose(found, wanted, atol=room * np.abs(wanted).max() * 2)


def test_a_linear_model_has_main_effects_and_nothing_else():
    explainer = geh.GEHExplainer(lambda x: 2 * x[:, 0] - 3 * x[:, 2] + 0 * x.sum(1), posterior=PointEstimate())
    with pytest.warns(geh.GEHWarning, match="exactly 0"):
        result = explainer.explain(four_features(), groups=2, progress=False)
    np.testing.assert_allclose(result.main.mean, [2, 0, -3, 0], atol=1e-12)
    assert result.main.table()["unit"].tolist()[:2] == ["x2", "x0"]


@pytest.mark.parametrize("engine", ["exact", "structured"])
def test_draws_are_those_of_the_posterior_together_or_one_by_one(engine):
    model = net()
    explainer = geh.GEHExplainer(model, engine=engine)
    result = explainer.explain(four_features(), groups=sides(), draws=12, progress=False)
    one_by_one = explainer.explain(four_features(), groups=sides(), draws=12, batch_size=7, progress=False)
    np.testing.assert_allclose(result.main.draws, one_by_one.main.draws, rtol=1e-9, atol=1e-12)
    wanted = []
    for draw in geh.posterior.MCDropout().draws(model.eval(), 12, 0):
        with draw:
            model(four_features()[:1])
            wanted.append(gradients(model, four_features()).mean(axis=0))
    np.testing.assert_allclose(result.main.draws, wanted, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.main.std, np.std(wanted, axis=0, ddof=1), rtol=1e-6)
    low, high = result.main.interval()
    np.testing.assert_allclose(high - low, 4 * result.main.std)


def test_hidden_units_scales_and_chosen_groups():
    model = net().eval()
    explainer = geh.GEHExplainer(model, "1", posterior=PointEstimate())
    hidden = model[:2](four_features()).detach()
    wanted = gradients(model[2:], hidden)
    plain = explainer.explain(four_features(), groups="auto", progress=False)
    np.testing.assert_allclose(plain.main.mean, wanted.mean(axis=0), rtol=1e-9, atol=1e-12)
    scaled = explainer.explain(four_features(), groups=2, scale="std", progress=False)
    ratio = scaled.main.mean / plain.main.mean
    np.testing.assert_allclose(ratio / ratio[0], hidden.std(dim=0) / hidden.std(dim=0)[0], rtol=1e-6)


def test_they_survive_saving_and_moments_are_enough(tmp_path):
    explainer = geh.GEHExplainer(net())
    result = explainer.explain(four_features(), groups=sides(), draws=12, progress=False)
    loaded = geh.Interactions.load(result.save(tmp_path / "a.npz"))
    np.testing.assert_array_equal(loaded.main.draws, result.main.draws)
    few = explainer.explain(four_features(), groups=sides(), draws=12, memory=2e-6, progress=False)
    assert not few.settings["draws_kept"]
    np.testing.assert_allclose(few.main.mean, result.main.mean, rtol=1e-9, atol=1e-12)
    assert (few.main.std >= result.main.std - 1e-12).all()
    again = geh.Interactions.load(few.save(tmp_path / "b.npz"))
    np.testing.assert_allclose(again.main.strength, few.main.strength)
    with pytest.raises(geh.GEHError, match="did not fit into memory"):
        few.main.draws  # noqa: B018


def test_a_file_with_other_slopes_is_refused(tmp_path):
    result = geh.GEHExplainer(net()).explain(four_features(), groups=sides(), draws=3, progress=False)
    draws = Draws(result.signed, result.absolute, None, np.zeros((3, 2, 9)))
    wrong = geh.Interactions(draws, result.labels, result.names, ["0", "1"], result.record)
    with pytest.raises(geh.GEHError, match="main effects do not fit"):
        geh.Interactions.load(wrong.save(tmp_path / "a.npz"))


class OwnRun(EngineRun):
    def chunk_rows(self, rows):
        return 100

    def add(self, sums, rows, labels):
        sums.signed += 1.0
        sums.absolute += 100.0


class Own(Engine):
    """An engine that computes interactions only, no first derivatives."""

    name = "own"
    differentiates = False

    def start(self, cut, limits):
        return OwnRun(self, cut, limits)


def test_an_engine_without_slopes_has_no_main_effects_and_everything_else():
    result = geh.GEHExplainer(net(), engine=Own(), posterior=PointEstimate()).explain(
        four_features(), groups=2, progress=False
    )
    assert not result.has_main
    with pytest.raises(geh.GEHError, match="this result has no main effects"):
        result.main  # noqa: B018
    assert "summed GEH" in result.plot.network().get_legend().get_title().get_text()


def test_the_network_shows_them():
    result = geh.GEHExplainer(net()).explain(four_features(), groups=2, draws=5, progress=False)
    ax = result.plot.network()
    assert "main effect" in ax.get_legend().get_title().get_text()
    areas = ax.collections[1].get_sizes()
    strength = result.main.strength
    assert np.argmax(areas) == np.argmax(strength)
    assert areas.max() / np.sort(areas)[-2] == pytest.approx(strength.max() / np.sort(strength)[-2], rel=1e-6)
