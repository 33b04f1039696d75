"""Data that the studies and examples use: from a folder, else downloaded, else a message that says how to get it.

The folder is an argument, or the environment variable ``GEH_EXPLAIN_DATA``.
"""

from geh_explain.datasets.mnist import TASKS, Digits, Pairs, mnist_digits, mnist_pairs

__all__ = ["TASKS", "Digits", "Pairs", "mnist_digits", "mnist_pairs"]
