"""Data sets of the studies and examples: read from a folder, else downloaded, else an error with the way to get them.

The folder is an argument of each loader, or the environment variable ``GEH_EXPLAIN_DATA``. Files are verified by their
SHA-256 digests.
"""

from geh_explain.datasets.mnist import TASKS, Digits, Pairs, mnist_digits, mnist_pairs
from geh_explain.datasets.regression import Regression
from geh_explain.datasets.simulation import simulated
from geh_explain.datasets.tables import bike_sharing, california_housing, energy_efficiency

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
