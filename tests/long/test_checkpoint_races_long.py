"""Fifty races of two processes for a checkpoint folder."""

import pytest
from racing_runs import count_poisoned


@pytest.mark.timeout(1800)
def test_fifty_races_for_a_folder_poison_none(tmp_path):
    assert count_poisoned(tmp_path, rounds=50) == 0
