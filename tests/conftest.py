"""Settings and fixtures of all tests: one thread, readable assertions in support modules, seeded generators."""

import random
import sys

import matplotlib
import numpy as np
import pytest
import torch

# Tests draw into files and arrays; no window is needed.
matplotlib.use("Agg")

# Small tensors gain nothing from more threads, and lose much where other processes use the machine too.
torch.set_num_threads(1)

# Assertions in these modules show their values when they fail, as those in test files do.
pytest.register_assert_rewrite(
    *(
        "expected_errors",
        "forged_file_checks",
        "forged_files",
        "interrupt_campaign",
        "interrupted_runs",
        "kinked_functions",
    ),
    *("random_networks", "reference_scores", "state_comparison", "structured_models"),
)


@pytest.fixture
def seeded() -> None:
    """Seed the global generators of torch, numpy and random with 0."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@pytest.fixture(autouse=True)
def closed_figures():
    """Close the figures of a test after it."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
