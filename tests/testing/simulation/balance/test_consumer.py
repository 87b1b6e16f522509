"""Members: handlers that take their time, and fail where the scenario wants it."""

import msgspec
import pytest

from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.balance.consumer import BalanceConsumer
from roquet.testing.simulation.balance.history import BalanceHistory
from roquet.testing.simulation.balance.scenario import draw_scenario


def member(failing: float, *, ordered: bool = False) -> BalanceConsumer:
    plan = msgspec.structs.replace(draw_scenario(2), failing=failing, ordered=ordered)
    clock = VirtualClock()
    return BalanceConsumer(
        "10.0.2.1", "10.0.0.1:9876", plan, BalanceHistory(clock.monotonic_ms), clock
    )


def test_of_a_failing_message_the_first_two_tries_fail() -> None:
    one = member(failing=1.0)
    assert [one.fails("key0:1") for _ in range(3)] == [True, True, False]


def test_where_nothing_fails_nothing_does() -> None:
    assert not member(failing=0.0).fails("key0:1")


@pytest.mark.parametrize("ordered", [False, True])
def test_its_name_in_the_group_is_its_host(ordered: bool) -> None:
    one = member(0.0, ordered=ordered)
    assert str(one) == "10.0.2.1"
    assert one.consumer.client_id == "10.0.2.1@10.0.2.1"
