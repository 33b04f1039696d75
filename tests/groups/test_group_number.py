"""The number of groups, chosen by rank-weighted distances between numbers of groups."""

import numpy as np
import pytest
import reference
import torch
from explaining import explain_point, point_explainer, random_points, uniform_points
from networks import mlp
from reference_scores import CLOSE
from torch import Tensor, nn

import geh_explain as geh


def test_the_distances_between_numbers_of_groups_are_weighted_by_ranks() -> None:
    net, x = mlp(5, 10, 10, 1, gain=2.0), random_points(60, 5)
    choice = point_explainer(net).choose_groups(x, max_groups=9, progress=False)
    assert isinstance(choice, geh.GroupChoice)
    np.testing.assert_array_equal(choice.counts, np.arange(2, 10))
    by_hand = reference.rank_weighted_distances(choice.scores)
    assert max(by_hand) > 0
    np.testing.assert_allclose(choice.delta, by_hand, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("draws", [4, 30])
def test_the_scores_of_every_number_of_groups_are_those_of_explaining_with_it(draws: int) -> None:
    net = nn.Sequential(*mlp(4, 10, 10, 1, gain=2.0)[:-1], nn.Dropout(0.2), nn.Linear(10, 1).double())
    explainer, x = geh.GEHExplainer(net), random_points(30, 4)
    choice = explainer.choose_groups(x, max_groups=6, draws=draws, progress=False)
    for groups, scores in enumerate(choice.scores, start=1):
        result = explainer.explain(x, groups=groups, draws=draws, progress=False)
        np.testing.assert_allclose(scores, result.geh.draws.mean(axis=0), rtol=0, atol=CLOSE)


def test_the_chosen_number_is_the_first_that_reaches_most_of_each_pair() -> None:
    net, x = mlp(5, 10, 10, 1, gain=2.0), random_points(240, 5)
    explainer = point_explainer(net)
    choice = explainer.choose_groups(x, progress=False)
    # 24 groups hold ten points on average.
    parts = [np.mean(scores / choice.scores[23]) for scores in choice.scores]
    assert np.diff(parts).min() > -CLOSE  # groups are nested
    assert parts[choice.chosen - 1] >= 0.7 > parts[choice.chosen - 2]
    automatic = explainer.explain(x, groups="auto", progress=False)
    assert automatic.settings["group_count"] == choice.chosen
    np.testing.assert_array_equal(automatic.labels, explain_point(net, x, groups=choice.chosen).labels)
    np.testing.assert_allclose(automatic.geh.draws[0], choice.scores[choice.chosen - 1], rtol=0, atol=CLOSE)


def test_the_choice_hardly_differs_between_samples_of_points() -> None:
    def model(x: Tensor) -> Tensor:
        return x[:, 0] * x[:, 1] * x[:, 2] + x[:, 3].abs() ** 3 * x[:, 4] + torch.sin(3 * x[:, 4]) * x[:, 5]

    explainer = point_explainer(model)
    samples = [2 * uniform_points(600, 6, seed=seed) - 1 for seed in range(6)]
    chosen = [explainer.choose_groups(x, progress=False).chosen for x in samples]
    assert max(chosen) <= 2 * min(chosen)


def test_strong_pairs_do_not_choose_one_group_for_weak_ones_that_change_their_sign() -> None:
    def model(x: Tensor) -> Tensor:
        return 5 * x[:, 0] * x[:, 1] + 0.1 * x[:, 2] ** 2 * x[:, 3]

    result = explain_point(model, random_points(500, 4), groups="auto")
    assert result.settings["group_count"] > 1
    assert result.geh.mean[2, 3] > 3 * result.aeh.mean[2, 3]


def test_few_pairs_do_not_choose_groups_of_few_points() -> None:
    x = random_points(100, 2)
    assert explain_point(lambda x: torch.sin(5 * x[:, 0] * x[:, 1]), x, groups="auto").settings["group_count"] <= 10


def test_with_scale_std_neither_scores_nor_groups_depend_on_units_of_measure():
    def model(x: Tensor) -> Tensor:
        return torch.sin(6 * x[:, 0] * x[:, 1]) + x[:, 2] * x[:, 3] - torch.exp(x[:, 0] * x[:, 3])

    x, metres = uniform_points(300, 4), torch.tensor([1.0, 1.0, 1.0, 1000.0]).double()
    plain = explain_point(model, x, groups="auto", scale="std")
    other = explain_point(lambda x: model(x / metres), x * metres, groups="auto", scale="std")
    assert len(other.group_names) == len(plain.group_names)
    assert other.signed == pytest.approx(plain.signed, rel=1e-6, abs=1e-9)
    chosen = point_explainer(model).choose_groups(x, scale="std", progress=False)
    assert chosen.chosen == len(plain.group_names)
    assert repr(chosen) == f"GroupChoice(chosen={chosen.chosen}, of 1 to 60 groups)"
