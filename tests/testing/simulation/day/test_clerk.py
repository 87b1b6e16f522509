"""Clerks: handlers that fail where the plan says so."""

import pytest

from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.day.clerk import Clerk, by_tag, is_audited
from roquet.testing.simulation.day.ledger import AUDIT, BILLING, Ledger
from roquet.testing.simulation.day.plan import POISON, Errand, Kind, plan


def errand(failures: int, tag: str = "a", weight: int = 1) -> Errand:
    return Errand(name="e1", at_ms=0, kind=Kind.PLAIN, failures=failures, tag=tag, weight=weight)


def tries(failures: int, group: str = BILLING) -> list[bool]:
    clock = VirtualClock()
    errands = {"e1": errand(failures)}
    clerk = Clerk("10.0.2.1", plan(0), errands, Ledger(clock.now_ms), clock, group)
    return [clerk._fails("e1") for _ in range(4)]


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
    assert is_audited(day, errand(0, tag="a", weight=1)) == (seed == 0)
    assert is_audited(day, errand(0, tag="b", weight=9)) == (seed == 1)
