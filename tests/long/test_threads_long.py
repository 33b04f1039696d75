"""Twenty seconds of explanations under load: another thread never draws a random number twice."""

import pytest
from drawing_threads import EXPLANATIONS, count_repeated


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("kind", EXPLANATIONS)
def test_no_number_of_another_thread_repeats_within_twenty_seconds(kind):
    n_drawn, repeated = count_repeated(EXPLANATIONS[kind](), seconds=20, load=2)
    assert n_drawn > 1000
    assert repeated == {"torch": 0, "numpy": 0, "python": 0}
