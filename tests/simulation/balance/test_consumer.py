"""Consumers of the balance workload: the first tries of some messages fail."""

import pytest

from roquet.testing.clock import VirtualClock
from simulation.balance.consumer import FirstTriesFail, balance_consumer
from simulation.balance.history import BalanceHistory
from simulation.balance.scenario import draw_scenario


def test_of_a_failing_message_the_first_two_tries_fail() -> None:
    fails = FirstTriesFail(2, share=1.0)
    assert [fails("key0:1") for _ in range(3)] == [True, True, False]


def test_where_nothing_fails_nothing_does() -> None:
    assert not FirstTriesFail(2, share=0.0)("key0:1")


def test_the_share_is_of_messages() -> None:
    fails = FirstTriesFail(2, share=0.2)
    assert 100 < sum(fails(f"key0:{n}") for n in range(1_000)) < 300


@pytest.mark.parametrize("seed", [2, 3])
def test_its_name_in_the_group_is_its_host(seed: int) -> None:
    clock = VirtualClock()
    scenario = draw_scenario(seed)
    assert scenario.ordered == (seed == 3)
    history = BalanceHistory(clock.monotonic_ms)
    consumer = balance_consumer("10.0.2.1", scenario, history, clock)
    assert consumer.consumer.client_id == "10.0.2.1@10.0.2.1"
