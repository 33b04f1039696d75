"""Simulated data: noise of the requested size, the same data for the same seed."""

import numpy as np
import pytest

import geh_explain as geh
from geh_explain.datasets import simulated, simulation


def test_the_noise_has_the_requested_variance():
    table = simulated(20_000, signal_to_noise=4.0, seed=1)
    signal = sum(simulation.effects(table.X.to_numpy()).values())
    assert np.var(table.y - signal) == pytest.approx(np.var(signal) / 4, rel=0.05)
    assert simulated(50).y.equals(simulated(50).y)
    with pytest.raises(geh.GEHError, match="signal_to_noise=-1 must be at least 0"):
        simulated(signal_to_noise=-1)


def test_without_signal_the_target_is_noise_of_the_same_variance():
    table = simulated(20_000, signal_to_noise=0, seed=1)
    signal = sum(simulation.effects(table.X.to_numpy()).values())
    assert np.var(table.y) == pytest.approx(np.var(signal), rel=0.05)
    assert np.corrcoef(table.y, signal)[0, 1] == pytest.approx(0, abs=0.03)
