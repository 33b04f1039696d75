"""Ctrl-C at thousands of moments: models, generators, modes, hooks and handlers are the same afterwards."""

import random

import interrupt_campaign as campaign
import pytest

# Python ignores KeyboardInterrupt where it closes a generator that nobody refers to any more.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

#: Signals at random moments.
N_RANDOM = 2000
#: Places per posterior and layer at which a signal is raised.
N_PLACES = 40


def test_signals_at_random_moments_leave_nothing_behind():
    chance = random.Random(1)
    runs = campaign.runs()
    limits = [campaign.seconds(run) for run in runs]
    for number in range(N_RANDOM):
        run, limit = runs[number % len(runs)], limits[number % len(runs)]
        run.calls = 0
        # Every third time Ctrl-C is pressed again within 20 ms.
        again = [chance.uniform(0, 0.02)] if number % 3 == 0 else []
        campaign.interrupt_at_random(run, [chance.uniform(0, limit), *again])
        assert run.calls


@pytest.mark.parametrize("number", range(len(campaign.SETTINGS)))
def test_signals_at_calls_leave_nothing_behind(number):
    chance = random.Random(number)
    run = campaign.Run(*campaign.SETTINGS[number])
    passed = campaign.places(run)
    for place in chance.sample(sorted(passed), N_PLACES):
        campaign.interrupt_at(run, place, chance.randint(1, passed[place]))
    # A few places are passed less often when something has been cached.
    assert run.calls > 0.9 * N_PLACES
