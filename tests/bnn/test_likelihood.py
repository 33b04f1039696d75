"""Negative log likelihoods agree with torch's distributions, up to their constants."""

import math

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal

from geh_explain.bnn.likelihood import cross_entropy, heteroscedastic_nll, homoscedastic_nll

pytestmark = pytest.mark.usefixtures("seeded")

#: log sqrt(2 pi), which the Gaussian losses leave out for every target.
CONSTANT = math.log(2 * math.pi) / 2


def test_cross_entropy_of_one_logit_and_of_one_logit_per_class():
    logits, two = torch.randn(9, 1), torch.randint(0, 2, (9,))
    torch.testing.assert_close(cross_entropy(logits, two), -Bernoulli(logits=logits[:, 0]).log_prob(two.float()).mean())
    logits, three = torch.randn(9, 3), torch.randint(0, 3, (9,))
    torch.testing.assert_close(cross_entropy(logits, three), -Categorical(logits=logits).log_prob(three).mean())


def test_means_come_before_log_variances():
    mean, log_variance, y = torch.randn(3, 7, 2)
    expected = -Normal(mean, (log_variance / 2).exp()).log_prob(y).sum(1).mean() - 2 * CONSTANT
    torch.testing.assert_close(heteroscedastic_nll(torch.cat([mean, log_variance], 1), y), expected)


def test_one_noise_variance_per_target():
    mean, y = torch.randn(2, 7, 2)
    noise = torch.tensor([0.3, 2.0])
    expected = -Normal(mean, noise.sqrt()).log_prob(y).sum(1).mean() - 2 * CONSTANT
    torch.testing.assert_close(homoscedastic_nll((mean - y).square(), noise), expected)
