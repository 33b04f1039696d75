"""What all tests share: one thread, asserts that say what they saw wherever they stand, and seeds for those who ask."""

import random

import numpy as np
import pytest
import torch

# Small tensors gain nothing from more threads, and lose much where others use the machine too.
torch.set_num_threads(1)

pytest.register_assert_rewrite("borrowing", "kinked", "refusing", "scoring")


@pytest.fixture
def seeded() -> None:
    """Start the global generators at 0."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
