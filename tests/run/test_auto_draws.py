"""``draws="auto"``: draws are added until the order of the strongest pairs is settled."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explaining import random_points
from torch import Tensor, nn

import geh_explain as geh


class Products(nn.Module):
    """The sum of all products x_i x_j with weights w_ij, whose interactions are the weights."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, x: Tensor) -> Tensor:
        i, j = torch.triu_indices(x.shape[1], x.shape[1], 1)
        return (x[:, i] * x[:, j]) @ self.weights


class Noisy:
    """Weights plus Gaussian noise, one vector of noise per draw."""

    def __init__(self, spread: float) -> None:
        self.spread = spread

    def draws(self, model: Any, n: int, seed: int) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(n):
            yield self._draw(model, torch.randn(len(model.weights), generator=generator, dtype=torch.double))

    @contextmanager
    def _draw(self, model: Any, noise: Tensor) -> Iterator[None]:
        before = model.weights.detach().clone()
        with torch.no_grad():
            model.weights += self.spread * noise
        try:
            yield
        finally:
            with torch.no_grad():
                model.weights.copy_(before)


def explain(spread: float, gap: float, **options: Any) -> geh.Interactions:
    model = Products(10 - gap * torch.arange(15, dtype=torch.double))
    explainer = geh.GEHExplainer(model, posterior=Noisy(spread))
    return explainer.explain(random_points(30, 6), groups=1, progress=False, **options)


def test_a_clear_order_needs_twenty_draws() -> None:
    result = explain(spread=0.1, gap=0.5, draws="auto")
    assert result.settings["draws"] == 20
    np.testing.assert_array_equal(result.geh.draws, explain(spread=0.1, gap=0.5, draws=20).geh.draws)


def test_draws_are_added_until_neighbours_differ_by_two_standard_errors() -> None:
    result = explain(spread=1.0, gap=0.5, draws="auto")
    assert 20 < result.settings["draws"] < 400
    scores = result.geh.draws[:, np.argsort(-result.geh.pair_mean)[:11]]
    gaps = -np.diff(scores, axis=1)
    errors = 2 * gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
    assert ((gaps.mean(axis=0) > errors) | (gaps.mean(axis=0) + errors < 0.02 * scores.mean(axis=0)[0])).all()


def test_an_order_that_does_not_settle_ends_with_a_warning() -> None:
    with pytest.warns(geh.GEHWarning, match="draws='auto': after 400 draws the order of the strongest pairs is not"):
        result = explain(spread=4.0, gap=0.1, draws="auto")
    assert result.settings["draws"] == 400


def test_equal_pairs_are_settled_once_their_errors_are_negligible() -> None:
    result = explain(spread=0.1, gap=0.0, draws="auto")
    assert result.settings["draws"] < 100


def test_mc_dropout_in_blocks_of_draws() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Dropout(0.05), nn.Linear(32, 1)).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = geh.GEHExplainer(net).explain(random_points(40, 5), groups=2, draws="auto", progress=False)
        expected = geh.GEHExplainer(net).explain(
            random_points(40, 5), groups=2, draws=result.settings["draws"], progress=False
        )
    assert 20 <= result.settings["draws"] <= 400
    np.testing.assert_allclose(result.geh.draws, expected.geh.draws, rtol=1e-10, atol=1e-14)


def test_with_moments_instead_of_draws() -> None:
    result = explain(spread=0.1, gap=0.5, draws="auto", memory=1e-5)
    assert not result.settings["draws_kept"]
    assert result.settings["draws"] == 20


@pytest.mark.parametrize("draws", ["many", 0, 2.5, None])
def test_other_words_and_numbers_are_refused(draws: Any) -> None:
    with pytest.raises(geh.GEHError, match="draws="):
        explain(spread=0.1, gap=0.5, draws=draws)


def dropout_network(n_features: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(n_features, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)).double()


def test_the_number_of_draws_does_not_depend_on_how_many_are_computed_at_once() -> None:
    # Draws of few points are computed in blocks, which skipped looks at the order, or all of them.
    net, x = dropout_network(3), random_points(20, 3)
    results = [
        geh.GEHExplainer(net).explain(x, groups=1, draws="auto", progress=False, batch_size=size)
        for size in (20, 140, 2000, None)
    ]
    counts = {result.settings["draws"] for result in results}
    assert len(counts) == 1
    assert 20 < counts.pop() < 400
    for result in results[1:]:
        np.testing.assert_allclose(result.geh.draws, results[0].geh.draws, rtol=1e-9)


def test_a_single_pair_has_no_order_to_settle() -> None:
    net, x = dropout_network(2), random_points(20, 2)
    assert geh.GEHExplainer(net).explain(x, groups=1, draws="auto", progress=False).settings["draws"] == 20


def test_pairs_that_are_all_zero_are_settled() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    with pytest.warns(geh.GEHWarning, match="exactly 0") as caught:
        result = geh.GEHExplainer(net).explain(random_points(20, 4).float(), groups=1, draws="auto", progress=False)
    assert result.settings["draws"] == 20
    assert not any("not settled" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("size", [140, None])
def test_draws_of_a_checkpoint_do_not_change_their_number(tmp_path: Path, size: int | None) -> None:
    # The blocks of the first run end after other draws than those at which the order is looked at.
    explainer, x = geh.GEHExplainer(dropout_network(3)), random_points(20, 3)
    options = {"groups": 1, "progress": False, "batch_size": size}
    expected = explainer.explain(x, draws="auto", **options)
    explainer.explain(x, draws=200, checkpoint=tmp_path, **options)
    result = explainer.explain(x, draws="auto", checkpoint=tmp_path, **options)
    np.testing.assert_allclose(result.geh.draws, expected.geh.draws, rtol=1e-9)
    again = explainer.explain(x, draws=200, checkpoint=tmp_path, **options)
    np.testing.assert_allclose(again.geh.draws[: len(result.geh.draws)], result.geh.draws, rtol=1e-9)


def test_an_order_that_settles_with_the_last_draw_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.run.options.MAX_AUTO_DRAWS", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", geh.GEHWarning)
        assert explain(spread=0.1, gap=0.5, draws="auto").settings["draws"] == 20
    net, x = dropout_network(2), random_points(20, 2)
    result = geh.GEHExplainer(net).explain(x, groups=1, draws="auto", progress=False)
    assert not any("not settled" in message for message in result.settings["warnings"])
