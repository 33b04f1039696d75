"""What the check of a fitted network says, for networks of known faults: outputs are made, nothing is trained."""

import numpy as np
import pytest
import torch
from torch import Tensor

import geh_explain as geh
from geh_explain.bnn.data import Table
from geh_explain.bnn.fit_check import FitCheck, check_fit


def draw(rows: int, seed: int) -> Tensor:
    return torch.rand(rows, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def noise(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, generator=torch.Generator().manual_seed(seed + 100))


def check(truth, network, size: float = 0.3, rows: tuple[int, int] = (2000, 600), seed: int = 0) -> FitCheck | None:
    """Check a network whose outputs on held-out rows are ``network(x)``, for targets ``truth(x)`` plus noise."""
    tables = []
    for number, count in enumerate(rows):
        x = draw(count, 2 * seed + number)
        tables.append(Table(x, (truth(x) + size * noise(count, 2 * seed + number))[:, None], "regression", None))
    return check_fit(*tables, network(tables[1].x)[:, None].double().numpy(), 0)


def main_effects(x: Tensor) -> Tensor:
    return 4 * x[:, 0] + torch.sin(3 * x[:, 1])


def test_interactions_that_are_a_small_part_and_not_learned_are_noticed() -> None:
    truth = lambda x: main_effects(x) + 2 * x[:, 2] * x[:, 3]  # noqa: E731
    found = check(truth, main_effects)
    # By the share of all variance the network is good: more than four fifths of what trees explain.
    assert found.network > 0.85 > 0.8 * found.trees
    assert not found.has_learned
    assert check(truth, truth).has_learned


@pytest.mark.parametrize("seed", range(4))
def test_an_additive_truth_that_was_learned_is_none(seed: int) -> None:
    assert check(main_effects, main_effects, seed=seed).has_learned
    assert check(main_effects, main_effects, size=3.0, seed=seed).has_learned


def test_a_network_that_is_worse_than_a_constant_has_learned_nothing() -> None:
    zero = lambda x: 0 * x[:, 0]  # noqa: E731
    assert check(zero, zero, size=1.0).has_learned
    overfitted = check(zero, lambda x: noise(len(x), 77), size=1.0)
    assert overfitted.network < -0.5
    assert not overfitted.has_learned


def test_heavy_tails_are_in_the_standard_error() -> None:
    generator = np.random.default_rng(0)
    heavy = lambda x: main_effects(x) + torch.as_tensor(generator.standard_cauchy(len(x))).float()  # noqa: E731
    assert check(heavy, main_effects).has_learned


def test_few_held_out_rows_and_copies_of_training_rows_tell_nothing() -> None:
    assert check(main_effects, main_effects, rows=(2000, 29)) is None
    x = draw(100, 0)
    y = (main_effects(x) + 5 * noise(100, 0))[:, None]
    table = Table(x, y, "regression", None)
    # Trees remember copied rows with their noise.
    assert check_fit(table, table, main_effects(x)[:, None].double().numpy(), 0) is None


def test_targets_that_differ_in_no_training_row_are_refused() -> None:
    y = torch.ones(100)
    y[int(torch.randperm(100, generator=torch.Generator().manual_seed(0))[0])] = 2.0  # held out with seed 0
    with pytest.raises(geh.GEHError, match="y is the same in all training rows"):
        geh.bnn.fit(geh.bnn.HybridNet(4, hidden=(3,)), draw(100, 0), y, epochs=2, progress=False)
