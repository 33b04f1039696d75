"""A budget of memory: what does not fit is streamed, with the same means and standard deviations."""

import gc

import numpy as np
import pytest
import torch
from explaining import explain_draws, explain_point, random_points
from networks import mlp

import geh_explain as geh
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")

#: So little that no draws are kept, for the few units here.
LITTLE = 1e-4


def network():
    """Return a network of 30 inputs, which have 435 pairs."""
    return mlp(30, 8, 1, dropout=0.3)


def explain_within(memory, *, rows=40, **options):
    """Explain with a budget in GB: by default 40 rows in 3 groups with 12 draws."""
    options = {"groups": 3, "draws": 12} | options
    return explain_draws(network(), random_points(rows, 30, seed=3), posterior=MCDropout(), memory=memory, **options)


@pytest.mark.parametrize("engine", ["auto", "exact", "stein"])
@pytest.mark.parametrize("scale", [None, "std"])
def test_moments_are_those_of_the_draws(engine, scale):
    kept, streamed = (explain_within(memory, engine=engine, scale=scale) for memory in (None, LITTLE))
    assert (kept.settings["draws_kept"], streamed.settings["draws_kept"]) == (True, False)
    for measure in ("geh", "aeh", "eah"):
        one, other = kept.scores(measure), streamed.scores(measure)
        assert one.n_draws == other.n_draws == 12
        np.testing.assert_allclose(other.mean, one.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.std, one.std, rtol=1e-7, atol=1e-12)
        for low, again in zip(one.interval(), other.interval(), strict=True):
            np.testing.assert_allclose(again, low, rtol=1e-7, atol=1e-12)
    assert kept.table().equals(kept.table())
    np.testing.assert_allclose(streamed.table()["mean"], kept.table()["mean"], rtol=1e-9)
    # In so little memory the errors of the points are not measured.
    assert streamed.point_errors is None
    columns = ["size", "mean", "std"]
    np.testing.assert_allclose(streamed.regions(0, 1)[columns], kept.regions(0, 1)[columns], rtol=1e-7, atol=1e-12)


def test_what_needs_the_draws_says_that_they_are_gone():
    result = explain_within(LITTLE)
    for ask in (
        lambda: result.geh.draws,
        lambda: result.signed,
        lambda: result.absolute,
        lambda: result.geh.interval(kind="quantile"),
    ):
        with pytest.raises(geh.GEHError, match=r"did not fit into memory.*memory="):
            ask()
    assert "12 draws" in repr(result)


def test_the_number_of_groups_is_chosen_from_fewer_draws():
    result = explain_within(LITTLE, groups="auto")
    assert not result.settings["draws_kept"]
    assert result.geh.n_draws == 12
    assert 1 <= result.settings["group_count"] <= 40


def test_moments_are_saved_and_loaded(tmp_path):
    result = explain_within(2 * LITTLE)
    again = geh.Interactions.load(result.save(tmp_path / "moments"))
    assert not result.settings["draws_kept"]
    assert result.point_errors.shape == (3, 435)
    for measure in ("geh", "aeh", "eah"):
        np.testing.assert_array_equal(again.scores(measure).mean, result.scores(measure).mean)
        np.testing.assert_array_equal(again.scores(measure).std, result.scores(measure).std)
    np.testing.assert_array_equal(again.point_errors, result.point_errors)
    assert again.regions(0, 1).equals(result.regions(0, 1))
    assert again.settings == result.settings


@pytest.mark.parametrize("change", ["count", "shape", "missing", "negative", "nan"])
def test_damaged_moments_are_refused(tmp_path, change):
    path = explain_within(LITTLE).save(tmp_path / "moments.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    if change == "count":
        arrays["count"] = np.array(0)
    elif change == "shape":
        arrays["geh_mean"] = arrays["geh_mean"][:-1]
    elif change == "missing":
        del arrays["aeh_squares"]
    else:
        arrays["eah_squares"][0] = -1 if change == "negative" else np.nan
    np.savez(path, **arrays)
    with pytest.raises(geh.GEHError, match="not an intact file"):
        geh.Interactions.load(path)


@pytest.mark.parametrize("wrong", [0, -1.0, "much", True, float("nan"), float("inf")])
def test_memory_is_a_number_of_gigabytes(wrong):
    with pytest.raises(geh.GEHError, match=r"memory=.*positive number of GB"):
        explain_within(wrong)


def test_too_many_units_for_the_memory_are_refused_with_a_way_out():
    with pytest.raises(geh.GEHError, match=r"30 units have 435 pairs.*units=explainer.screen\(inputs\)"):
        explain_within(1e-5)


def test_the_result_does_not_depend_on_the_budget_of_a_chunk():
    complete, pieces = (explain_within(memory, rows=200) for memory in (None, 2e-3))
    np.testing.assert_allclose(pieces.geh.mean, complete.geh.mean, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("engine", ["structured", "exact"])
def test_nothing_is_left_behind(engine):
    def alive():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    explain_within(None, engine=engine)
    before = alive()
    for _ in range(3):
        explain_within(None, engine=engine)
    assert alive() == before


@pytest.mark.parametrize(("units", "options"), [(200_000, {}), (2000, {"memory": 0.01})])
def test_more_pairs_than_fit_are_refused_with_a_way_out(units, options):
    with pytest.raises(geh.GEHError, match=rf"{units:,} units .* memory .*units=explainer\.screen\(inputs\)"):
        explain_point(lambda x: x.sum(1) ** 2, torch.zeros(2, units), groups=1, **options)


def test_more_units_than_memory_can_hold_are_refused_before_the_work():
    with pytest.raises(geh.GEHError, match=r"150,528 units have 11,329,264,128 pairs.*Channels\(\)"):
        explain_point(lambda x: x.sum((1, 2, 3)) ** 2, torch.zeros(2, 3, 224, 224))
