"""Held-out rows that are copies of each other, and those that repeat by chance."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHWarning
from geh_explain.evidence.training_rows import count_copied_rows

ROWS = 600


def run_test(x, y):
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=geh.posterior.PointEstimate())
    return explainer.test_pairs(x, y, progress=False)


def continuous(seed=0):
    return torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(seed)).double()


def few_levels():
    return torch.randint(0, 3, (ROWS, 3), generator=torch.Generator().manual_seed(0)).double()


def labels(x, seed=1):
    noise = torch.randn(len(x), generator=torch.Generator().manual_seed(seed))
    return x[:, 0] * x[:, 1] + x[:, 2] + noise


@pytest.mark.parametrize("kind", ["numbers", "classes", "few levels"])
def test_rows_that_are_there_three_times_are_warned_of(kind):
    x = few_levels() if kind == "few levels" else continuous()
    y = labels(x) if kind != "classes" else labels(x) > 0
    with pytest.warns(GEHWarning, match="1,200 of 1,800 held-out rows repeat the inputs and the label of another row"):
        run_test(x.repeat(3, 1), y.repeat(3))


def test_an_oversampled_class_in_a_loader_is_warned_of():
    x = continuous()
    y = labels(x) > 1.5
    rows = torch.cat([torch.arange(ROWS), *[y.nonzero()[:, 0]] * 4])
    copies = 4 * int(y.sum())
    with pytest.warns(GEHWarning, match=f"{copies} of {ROWS + copies:,} held-out rows repeat"):
        run_test(DataLoader(TensorDataset(x[rows]), batch_size=100), y[rows])


def test_rows_that_repeat_by_chance_are_not():
    x = few_levels()
    run_test(x, labels(x) > 2)  # 54 different rows
    run_test(x, labels(x).round())
    run_test(x, labels(x))  # the same inputs with other labels


def test_rows_of_zeros_are_no_copies():
    """Customers who have never bought anything are many, but they are customers of their own."""
    x = continuous()
    x[:120] = 0
    run_test(x, labels(x) > 0.5 * (torch.arange(ROWS) < 120))


def test_a_few_copies_are_no_reason_for_a_warning():
    x = continuous()
    y = labels(x)
    run_test(torch.cat([x, x[:20]]), torch.cat([y, y[:20]]))


@pytest.mark.parametrize(("repeats", "copies"), [(3, 180), (30, 0)])
def test_settings_with_many_rows_each_are_a_design(repeats, copies):
    """The label has no noise, so that all rows of one of the 90 settings are equal."""
    x = continuous()[:90].repeat(repeats, 1)
    points = InMemoryPoints(Rows((x,), ForwardArgs.of(None, (), len(x))))
    assert count_copied_rows(points, x[:, 2].numpy()) == copies
