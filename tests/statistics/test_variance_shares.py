"""Pick-freeze estimators agree with analytic variance shares, and their intervals cover them."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import stdtrit

from geh_explain.statistics.variance_shares import (
    PickFreezeOutputs,
    PickFreezePoints,
    choose_block_count,
    draw_points,
    ratios_with_errors,
    sums_by_block,
)

Function = Callable[[np.ndarray], np.ndarray]


def outputs_at(
    function: Function, values: np.ndarray, points: PickFreezePoints, pairs: np.ndarray
) -> PickFreezeOutputs:
    """Evaluate a function of the columns of ``values`` at all points of a design, one set of factors at a time."""
    factors = values.shape[1]
    first, second = (values[rows, np.arange(factors)] for rows in (points.first, points.second))
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for exchanged in [[], *([factor] for factor in range(factors)), *pairs.tolist()]:
        for side, (own, other) in enumerate([(first, second), (second, first)]):
            moved = own.copy()
            moved[:, exchanged] = other[:, exchanged]
            sides[side].append(function(moved))
    return PickFreezeOutputs(np.stack(sides[0]), np.stack(sides[1]), pairs, factors)


def estimate(
    function: Function, values: np.ndarray, seed: int, per_block: int = 100
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return shares and errors of all parts (without an additive fit), and the degrees of freedom."""
    factors = values.shape[1]
    generator = np.random.default_rng(seed)
    blocks = np.array_split(generator.permutation(len(values)), choose_block_count(len(values), factors))
    points = draw_points(blocks, factors, per_block, generator)
    outputs = outputs_at(function, values, points, np.stack(np.triu_indices(factors, 1), axis=1))
    mean = outputs.first[0].mean()
    terms = outputs.terms((outputs.first[0] - mean, outputs.second[0] - mean))
    ratios, errors = ratios_with_errors(sums_by_block(terms, points.blocks, len(blocks))[None])
    return ratios[0], errors, len(blocks) - 1


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def ishigami_shares() -> np.ndarray:
    """Return all interactions, main effects (3), interactions of each unit (3), pairs 01, 02, 12."""
    first, second = (1 + 0.1 * np.pi**4 / 5) ** 2 / 2, 49 / 8
    both = 0.01 * np.pi**8 * (1 / 18 - 1 / 50)
    return np.array([both, first, second, 0, both, 0, both, 0, both, 0]) / (first + second + both)


def test_shares_of_the_ishigami_function_are_the_analytic_ones():
    values = np.random.default_rng(0).uniform(-np.pi, np.pi, (20_000, 3))
    ratios, errors, freedom = estimate(ishigami, values, seed=1, per_block=4000)
    expected = ishigami_shares()
    assert np.all(np.abs(ratios - expected) <= stdtrit(freedom, 0.9995) * errors + 1e-12)
    # The unit x1 interacts with nothing: its differences are the same beside all other values, to rounding.
    assert ratios[[5, 7, 9]] == pytest.approx(0, abs=1e-12)
    assert ratios == pytest.approx(expected, abs=0.02)


def test_an_additive_function_has_no_interactions_at_any_point():
    values = np.random.default_rng(0).normal(size=(300, 4))
    ratios, errors, _ = estimate(lambda x: x[:, 0] + np.exp(x[:, 1]) - 3 * np.abs(x[:, 2]), values, seed=1)
    assert np.abs(ratios[0]) < 1e-12
    assert ratios[5:] == pytest.approx(0, abs=1e-12)
    assert errors[0] < 1e-12


def test_a_product_of_centred_units_is_all_interaction():
    values = np.random.default_rng(0).normal(size=(20_000, 2))
    ratios, _, _ = estimate(lambda x: x[:, 0] * x[:, 1], values, seed=1, per_block=4000)
    assert ratios == pytest.approx([1, 0, 0, 1, 1, 1], abs=0.05)


def test_a_product_of_three_units_is_no_interaction_of_two():
    values = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 3))
    ratios, _, _ = estimate(lambda x: x.prod(axis=1), values, seed=1, per_block=4000)
    assert ratios == pytest.approx([1, 0, 0, 0, 1, 1, 1, 0, 0, 0], abs=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_intervals_cover_the_share_also_where_units_of_a_row_depend_on_each_other(correlation):
    # Marginals are standard normal: the share of independent units is 0.25 / 2.25 whatever the correlation.
    expected, hits, n_repetitions = 0.25 / 2.25, 0, 200
    for seed in range(n_repetitions):
        generator = np.random.default_rng(seed)
        common, own = generator.normal(size=(300, 1)), generator.normal(size=(300, 3))
        values = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        ratios, errors, freedom = estimate(
            lambda x: x[:, 0] + x[:, 1] + 0.5 * x[:, 0] * x[:, 1], values, seed, per_block=40
        )
        hits += abs(ratios[0] - expected) <= stdtrit(freedom, 0.975) * errors[0]
    # 95 % nominally; the binomial standard error is 1.5 %.
    assert hits / n_repetitions >= 0.90


def test_all_factors_of_a_comparison_come_from_different_rows_of_one_block():
    blocks = np.array_split(np.arange(200), 10)
    points = draw_points(blocks, 5, 30, np.random.default_rng(0))
    rows = np.concatenate([points.first, points.second], axis=1)
    assert all(len(set(row)) == 10 for row in rows)
    assert np.array_equal(rows // 20, np.repeat(points.blocks[:, None], 10, axis=1))
    counts = np.bincount(points.blocks)
    assert counts.tolist() == [30] * 10


def test_small_blocks_still_give_different_values_to_both_points():
    points = draw_points([np.arange(3), np.arange(3, 6)], 7, 10, np.random.default_rng(0))
    assert np.all(points.first != points.second)


def test_the_jackknife_of_a_ratio_is_that_of_its_definition():
    sums = np.random.default_rng(0).uniform(1, 2, size=(3, 6, 2))
    ratios, errors = ratios_with_errors(sums)
    left_out = np.array(
        [
            np.mean(np.delete(sums, g, axis=1).sum(axis=1) @ [0, 1] / (np.delete(sums, g, axis=1).sum(axis=1) @ [1, 0]))
            for g in range(6)
        ]
    )
    assert errors[0] == pytest.approx(np.sqrt(5 / 6 * ((left_out - left_out.mean()) ** 2).sum()))
    assert ratios[:, 0] == pytest.approx(sums[:, :, 1].sum(axis=1) / sums[:, :, 0].sum(axis=1))
