"""The simulated day earns its trust: each planted bug is found, and without one nothing is."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import pytest

from roquet.testing import clock
from roquet.testing.simulation.balance.run import isolated_clients
from roquet.testing.simulation.timed.defects import DEFECTS
from roquet.testing.simulation.timed.run import live
from roquet.testing.simulation.timed.scenario import (
    POISON,
    SendKind,
    SendOperation,
    TimedFault,
    TimedFaultEvent,
    TimedScenario,
    TransactionCourse,
    plan,
)

CRASH = TimedFaultEvent(12_000, TimedFault.CRASH, 0, 60_000)


def day(crash: bool = False, **operation: Any) -> TimedScenario:
    """A day with one message: whole seeds find the same, `roquet simulate --defect NAME`."""
    wanted = {"name": "e0", "at_ms": 9_000, "failures": 0, "tag": "a", "weight": 1, **operation}
    return msgspec.structs.replace(
        plan(0),
        brokers=1,
        queues=1,
        members=1,
        network_ms=(0, 3),
        operations=(SendOperation(**wanted),),
        events=(CRASH,) if crash else (),
    )


DAYS = {
    "early-timer": (day(kind=SendKind.TIMER, wait_ms=7_500), "early: e0"),
    "unnoted-commit": (day(kind=SendKind.TRANSACTION), "doubled: e0"),
    "skipped-level": (day(kind=SendKind.PLAIN, failures=1), "early: e0"),
    "dropped-dead-letter": (day(kind=SendKind.PLAIN, failures=POISON), "unburied: e0"),
    "forgotten-overdue": (day(True, kind=SendKind.LEVEL, level=4, wait_ms=30_000), "lost: e0"),
    "forgotten-halves": (
        day(True, kind=SendKind.TRANSACTION, course=TransactionCourse.LATER),
        "lost: e0",
    ),
}
"""For each bug a day in which it shows, and what is said of it."""


def faults(plan: TimedScenario, defect: AbstractContextManager[None]) -> tuple[str, ...]:
    with defect, isolated_clients():
        return clock.run(live(plan), seed=0).faults


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_bug_is_found(defect: str) -> None:
    plan, said = DAYS[defect]
    assert any(fault.startswith(said) for fault in faults(plan, DEFECTS[defect]()))


@pytest.mark.parametrize("defect", [name for name in DAYS if name != "dropped-dead-letter"])
def test_without_it_nothing_is_wrong(defect: str) -> None:
    assert faults(DAYS[defect][0], nullcontext()) == ()
