"""Timed workload: its operations and faults happen, and quiet time is skipped."""

import time

import msgspec
import pytest

from roquet.model import names
from roquet.testing import clock
from simulation.scenario import Fault, FaultEvent
from simulation.simulator import isolated_clients, run
from simulation.timed.consumer import AUDIT, BILLING
from simulation.timed.scenario import (
    HOUR_MS,
    SendKind,
    SendOperation,
    TimedScenario,
    TransactionCourse,
    draw_scenario,
)
from simulation.timed.stored_messages import logged_messages
from simulation.timed.workload import TimedWorkload

QUIET = msgspec.structs.replace(
    draw_scenario(0), brokers=1, queues=1, members=1, network_ms=(0, 3), operations=(), events=()
)


def operation(
    name: str, kind: SendKind = SendKind.PLAIN, at_ms: int = 8_000, **more: object
) -> SendOperation:
    wanted = {"failures": 0, "tag": "a", "weight": 1, **more}
    return SendOperation(name=name, at_ms=at_ms, kind=kind, **wanted)  # type: ignore[arg-type]


def finished(*operations: SendOperation, events: tuple[FaultEvent, ...] = ()) -> TimedWorkload:
    """The workload of these operations at its end."""
    scenario = msgspec.structs.replace(QUIET, operations=operations, events=events)

    async def main(scenario: TimedScenario) -> TimedWorkload:
        workload = TimedWorkload(scenario)
        await run(workload)
        return workload

    with isolated_clients():
        return clock.run(main(scenario), seed=scenario.seed)


def is_settled(workload: TimedWorkload) -> bool:
    return any(line.endswith(" settled") and "not" not in line for line in workload.history.lines)


def test_hours_pass_in_a_moment() -> None:
    began = time.perf_counter()
    workload = finished(operation("e0", SendKind.TIMER, wait_ms=2 * HOUR_MS))
    assert is_settled(workload)
    assert workload.clock.monotonic_ms() > 2 * HOUR_MS
    assert time.perf_counter() - began < 60  # of a machine that is busy; it takes one


def test_each_group_gets_what_it_wants() -> None:
    workload = finished(
        operation("e0"),
        operation("e1", tag="b"),
        operation("e2", SendKind.LEVEL, level=1, wait_ms=1_000),
    )
    assert workload.history.handled(BILLING) == {"e0", "e1", "e2"}
    assert workload.history.handled(AUDIT) == {"e0", "e2"}
    assert workload.unhandled() == []


def test_transactions_end_as_their_course_says() -> None:
    workload = finished(
        *(
            operation(course.name, SendKind.TRANSACTION, course=course)
            for course in TransactionCourse
        )
    )
    kept = {"COMMIT", "COMMIT_WHEN_CHECKED", "CRASH_BEFORE_COMMIT"}
    assert workload.history.handled(BILLING) == kept
    assert workload.open_halves() == []
    found = logged_messages(workload.stores, 0)
    assert [one.name for one in found if one.topic == names.CHECK_MAX_TIME_TOPIC] == [
        "NEVER_DECIDE"
    ]
    assert workload.producer.crashes == 1  # both of those that die do so at once


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.PRODUCER_CRASH, Fault.JOIN, Fault.KILL])
def test_nothing_is_lost_by_a_fault(fault: Fault) -> None:
    workload = finished(
        operation("e0", SendKind.LEVEL, level=4, wait_ms=30_000),
        events=(FaultEvent(at_ms=20_000, fault=fault, down_ms=4_000),),
    )
    assert is_settled(workload)
    assert workload.history.handled(BILLING) == {"e0"}
