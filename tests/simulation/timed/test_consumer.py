"""Consumers of the timed workload: they fail as often as the scenario says, the audit never."""

import msgspec
import pytest

from roquet.testing.clock import VirtualClock
from simulation.timed.consumer import (
    AUDIT,
    BILLING,
    filters_by_tag,
    is_audited,
    timed_consumer,
)
from simulation.timed.history import TimedHistory
from simulation.timed.scenario import POISON, SendKind, SendOperation, draw_scenario


def operation(failures: int, tag: str = "a", weight: int = 1) -> SendOperation:
    return SendOperation(
        name="e1", at_ms=0, kind=SendKind.PLAIN, failures=failures, tag=tag, weight=weight
    )


def failed_tries(failures: int, group: str = BILLING) -> list[bool]:
    clock = VirtualClock()
    scenario = msgspec.structs.replace(draw_scenario(0), operations=(operation(failures),))
    history = TimedHistory(clock.monotonic_ms)
    consumer = timed_consumer("10.0.2.1", group, scenario, history, clock)
    return [consumer.fails("e1") for _ in range(4)]


def test_a_message_fails_as_often_as_its_operation_says() -> None:
    assert failed_tries(0) == [False] * 4
    assert failed_tries(2) == [True, True, False, False]
    assert failed_tries(POISON) == [True] * 4


def test_the_audit_never_fails() -> None:
    assert failed_tries(2, AUDIT) == [False] * 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_audit_subscribes_to_a_tag_or_to_a_weight(seed: int) -> None:
    scenario = draw_scenario(seed)
    assert filters_by_tag(scenario) == (seed == 0)
    assert is_audited(scenario, operation(0, tag="a", weight=1)) == (seed == 0)
    assert is_audited(scenario, operation(0, tag="b", weight=9)) == (seed == 1)
