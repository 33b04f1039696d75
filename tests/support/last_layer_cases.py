"""Fitted networks for tests of LastLayerLaplace."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

#: A given precision is not that of the training, and the mode of the Gaussian is elsewhere.
given_precision = pytest.mark.filterwarnings("ignore:.*(from the mode|do not fit these data)")


def fitted_network(n_outputs, classes=False, rows=200):
    """Return a tanh network, fitted by cross-entropy or squared errors, with its inputs and labels."""
    x = torch.rand(rows, 3, dtype=torch.double) * 2 - 1
    signals = torch.stack([3 * x[:, 0] * x[:, 1] + x[:, 2], 2 * x[:, 1], -x[:, 0]], dim=1)[:, : max(1, n_outputs)]
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, n_outputs)).double()
    if classes and n_outputs == 1:
        y = torch.bernoulli(torch.sigmoid(signals[:, 0])).long()
    elif classes:
        y = torch.distributions.Categorical(logits=2 * signals).sample()
    else:
        y = signals + 0.2 * torch.randn(rows, n_outputs, dtype=torch.double)
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(300):
        loss = negative_log_likelihood(net(x), y, 1.0).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net, x, y


def negative_log_likelihood(outputs, y, noise):
    """Return the negative log-likelihood (n,) of each row, up to a constant."""
    if y.is_floating_point():
        return (outputs - y).square().sum(1) / (2 * noise**2)
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], y.to(outputs), reduction="none")
    return F.cross_entropy(outputs, y, reduction="none")
