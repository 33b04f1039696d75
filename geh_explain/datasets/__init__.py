"""Data that the studies and examples use: from a folder, else downloaded, else a message that says how to get it.

The folder is an argument, or the environment variable ``GEH_EXPLAIN_DATA``.
"""

from geh_explain.datasets.mnist import TASKS, Digits, Pairs, mnist_digits, mnist_pairs
from geh_explain.datasets.simulation import simulated
from geh_explain.datasets.tables import Regression, bike_sharing, california_housing, energy_efficiency

__all__ = [
    "TASKS",
    "Digits",
    "Pairs",
    "Regression",
    "bike_sharing",
    "california_housing",
    "energy_efficiency",
    "mnist_digits",
    "mnist_pairs",
    "simulated",
]
