"""The same statement about random networks as in the short tests, for a thousand of them."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from random_networks import Case, cases, check

#: What became of each network: the engine that took it, or that it was refused.
outcomes: Counter[str] = Counter()


@pytest.mark.timeout(3600)
@settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=1000,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(case=cases())
def test_a_thousand_random_networks_have_the_hessians_of_two_plain_backward_passes(case: Case) -> None:
    outcomes[check(case)] += 1


def test_both_engines_had_their_share_of_them_and_few_were_refused() -> None:
    if not outcomes:
        pytest.skip("the thousand networks were not explained in this run")
    total = sum(outcomes.values())
    assert outcomes["structured"] > total / 4
    assert outcomes["exact"] > total / 4
    assert outcomes["refused"] < total / 8
