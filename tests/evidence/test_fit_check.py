"""Outputs that do not predict the held-out labels: wrong scale, order, target or link."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.errors import GEHWarning
from geh_explain.evidence.fit_check import describe_misfit

ROWS = 600


def inputs():
    return torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0)).double()


def shuffled(y):
    return np.random.default_rng(2).permutation(y)


def network(x):
    return 0.5 * x[:, 0] * x[:, 1] + x[:, 2]


def numbers():
    return (network(inputs()) + torch.randn(ROWS, generator=torch.Generator().manual_seed(1))).numpy()


def classes():
    return np.random.default_rng(1).uniform(size=ROWS) < torch.sigmoid(network(inputs())).numpy()


def counts(shift=0.0):
    return np.random.default_rng(1).poisson(torch.exp(network(inputs()) / 2 + shift).numpy())


def run_test(y, model=network, **options):
    link = options.pop("link", "auto")
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate(), **options)
    return explainer.test_pairs(inputs(), y, link=link, progress=False)


@pytest.mark.parametrize(
    ("y", "options"),
    [
        (lambda: numbers(), {}),
        (lambda: 1000 * numbers() + 5000, {"model": lambda x: 1000 * network(x) + 5000}),
        (lambda: classes(), {}),
        (lambda: classes(), {"model": lambda x: 100 * network(x)}),  # far too confident
        (lambda: classes(), {"model": lambda x: network(x) - 5}),  # trained on other shares of the classes
        (lambda: classes(), {"model": lambda x: 100 * network(x), "output": "probability"}),
        (lambda: 2.0 * classes() - 1, {}),
        (lambda: counts(), {"model": lambda x: network(x) / 2, "output": torch.exp}),
        (lambda: numbers() > 1.8, {}),  # a rare class
    ],
)
def test_networks_that_predict_the_labels_are_tested_without_a_warning(y, options):
    assert run_test(y(), **options).p_value[0] < 0.05


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        # 1 - 5000^2 / 1500^2 = -10
        (lambda: 1000 * numbers() + 5000, {}, r"R\^2 = -1\d on 600 held-out rows.*scale of the output"),
        (lambda: shuffled(numbers()), {}, "none of the variance.*in the order of the rows"),
        (lambda: inputs()[:, 0], {}, "none of the variance.*labels are those of this target"),
        (lambda: counts(1.0), {"model": lambda x: network(x) / 2 + 1}, "none of the variance.*output=torch.exp"),
        (lambda: counts(-0.5), {"model": lambda x: network(x) / 2 - 0.5}, "torch.exp"),
        (lambda: shuffled(classes()), {}, "AUC = 0.51 on 600 held-out rows.*in the order of the rows"),
        (lambda: np.where(classes(), "benign", "malignant"), {}, "AUC = 0.2.*second class in sorted order"),
        (lambda: classes(), {"model": lambda x: 100 * network(x), "link": "identity"}, "none of the variance"),
    ],
)
def test_labels_on_another_scale_in_another_order_or_of_another_target_are_warned_of_once(y, options, message):
    with pytest.warns(GEHWarning, match=message) as caught:
        run_test(y(), **options)
    assert len(caught) == 1


def test_a_network_of_logs_is_found_also_where_it_explains_a_part_of_the_variance():
    """For g normal with standard deviation s, exp(g) has mean m = exp(s^2 / 2), and R^2 > 0 if 2 s^2 m > s^2 + m^2."""
    log_mean = 1.3 * np.random.default_rng(0).normal(size=1000)
    y = np.random.default_rng(1).poisson(np.exp(log_mean)).astype(float)
    assert "exp(output) predicts the labels better" in describe_misfit(y, log_mean, "identity", classes=False)
    assert describe_misfit(y, np.exp(log_mean), "identity", classes=False) is None


def test_an_output_of_one_value_separates_nothing():
    labels = np.arange(100) % 2 * 1.0
    assert "AUC = 0.50" in describe_misfit(labels, np.zeros(100), "logit", classes=True)
