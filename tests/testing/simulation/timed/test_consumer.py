"""Clerks: handlers that fail where the plan says so."""

import pytest

from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.timed.consumer import TimedConsumer, by_tag, is_audited
from roquet.testing.simulation.timed.history import AUDIT, BILLING, TimedHistory
from roquet.testing.simulation.timed.scenario import POISON, SendKind, SendOperation, plan


def operation(failures: int, tag: str = "a", weight: int = 1) -> SendOperation:
    return SendOperation(
        name="e1", at_ms=0, kind=SendKind.PLAIN, failures=failures, tag=tag, weight=weight
    )


def tries(failures: int, group: str = BILLING) -> list[bool]:
    clock = VirtualClock()
    operations = {"e1": operation(failures)}
    consumer = TimedConsumer(
        "10.0.2.1", plan(0), operations, TimedHistory(clock.now_ms), clock, group
    )
    return [consumer._fails("e1") for _ in range(4)]


def test_a_message_fails_as_often_as_its_errand_says() -> None:
    assert tries(0) == [False] * 4
    assert tries(2) == [True, True, False, False]
    assert tries(POISON) == [True] * 4


def test_the_audit_never_fails() -> None:
    assert tries(2, AUDIT) == [False] * 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_audit_wants_a_tag_or_a_weight(seed: int) -> None:
    day = plan(seed)
    assert by_tag(day) == (seed == 0)
    assert is_audited(day, operation(0, tag="a", weight=1)) == (seed == 0)
    assert is_audited(day, operation(0, tag="b", weight=9)) == (seed == 1)
