"""The study of decisions: its data have the interactions that they should, networks learn, the page tells misses."""

import numpy as np
import pytest
import torch

from studies.decisions import experiment, page, summary
from studies.decisions.networks import train_together
from studies.decisions.scenarios import SCENARIOS, Scenario, draw, true_pairs


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_finite_data_of_its_size(name):
    scenario = SCENARIOS[name]
    sample = draw(scenario, 0)
    assert sample.x_train.shape[0] == scenario.train
    assert sample.y_held.shape == (scenario.held_out,)
    assert np.isfinite(sample.x_held).all()
    if scenario.labels == "binary":
        assert abs(sample.y_train.mean() - scenario.share) < 0.03
    assert sample.y_train.std() > (0.3 if scenario.share == 0.5 else 0.1)
    interacting = {"pairs": 7, "steps": 2, "main": 0, "hour": 1, "index": 0, "triple": 3}[scenario.signal]
    if scenario.units != "features":  # neighbours among four features, or among four groups
        interacting = 3
    assert true_pairs(scenario).sum() == (0 if scenario.sn == 0 else interacting)


def test_features_have_the_correlation_of_the_scenario():
    from scipy.special import ndtri

    scores = ndtri(draw(Scenario(correlation=0.8), 0).units)
    correlations = np.corrcoef(scores.T)[np.triu_indices(8, 1)]
    assert correlations.min() > 0.75
    assert correlations.max() < 0.85


def test_networks_trained_together_learn_their_own_data():
    generator = np.random.default_rng(0)
    inputs = [generator.normal(3, 2, size=(600, 2)) for _ in range(2)]
    labels = [inputs[0][:, 0], -inputs[1][:, 1]]
    networks = train_together(inputs, labels, fit="usual", task="numbers", seed=0)
    for network, x, y in zip(networks, inputs, labels, strict=True):
        with torch.no_grad():
            predicted = network(torch.as_tensor(x, dtype=torch.float32))[:, 0].numpy()
        assert np.corrcoef(predicted, y)[0, 1] > 0.99


@pytest.fixture(scope="module")
def record():
    return experiment.run(("300 rows", 0, 2))


def test_a_block_of_data_sets_has_p_values_beside_the_truth(record):
    first, second = record["data_sets"]
    assert first["p_value"] != second["p_value"]
    assert len(first["p_value"]) == len(first["interacts"]) == 28
    table = summary.tabulate(record["data_sets"])
    p_values, interacts = np.array(first["p_value"]), np.array(first["interacts"])
    assert table["level"][0] == pytest.approx((p_values[~interacts] < 0.05).mean())
    assert table["power"][0] == pytest.approx((p_values[interacts] < 0.05).mean())


def test_the_page_shows_misses_in_bold(record):
    """Eight data sets, of which the scores are made up: one scenario holds its level, the other does not."""
    generator = np.random.default_rng(0)
    data_sets = []
    for name, null in (("S/N 1", generator.uniform(size=(4, 21))), ("correlation 0.8", np.full((4, 21), 0.01))):
        for seed in range(4):
            data_set = {
                "scenario": name,
                "seed": seed,
                "fit_seconds": 1.0,
                "seconds": 1.0,
                "p_value": [*[0.001] * 7, *null[seed]],
                "interacts": [True] * 7 + [False] * 21,
            }
            if name == "S/N 1":
                ones = np.ones(28)
                data_set |= {"geh": ones, "slope": ones, "slope_se": ones, "true": ones, "low": ones, "high": ones}
                data_set["oracle"] = data_set["p_value"]
            data_sets.append(data_set)
    text = page.build_page(summary.tabulate(data_sets), [[["x0", "x1"]], []], experiment.QUICK)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert rows["correlation 0.8"].split(" | ")[1] == "**100.0 ± 0.0 %**"
    assert "**" not in rows["S/N 1"].split(" | ")[4]  # power
    assert "**1 of 2**" in text
