"""Two processes that claim one checkpoint folder at the same moment never mix their draws."""

import pytest
from racing_runs import count_poisoned


@pytest.mark.timeout(120)
def test_two_processes_in_one_folder_do_not_mix_their_draws(tmp_path):
    assert count_poisoned(tmp_path, rounds=6) == 0
