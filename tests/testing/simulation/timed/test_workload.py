"""The world of a day: what its plan asks for is what happens, and quiet time is passed over."""

import time

import msgspec
import pytest

from roquet.model import names
from roquet.testing import clock
from roquet.testing.simulation.balance.run import isolated_clients
from roquet.testing.simulation.timed.history import AUDIT, BILLING
from roquet.testing.simulation.timed.scenario import (
    HOUR_MS,
    SendKind,
    SendOperation,
    TimedFault,
    TimedFaultEvent,
    TimedScenario,
    TransactionCourse,
    plan,
)
from roquet.testing.simulation.timed.stored_messages import logged_messages
from roquet.testing.simulation.timed.workload import TimedWorkload

QUIET = msgspec.structs.replace(
    plan(0), brokers=1, queues=1, members=1, network_ms=(0, 3), operations=(), events=()
)


def operation(
    name: str, kind: SendKind = SendKind.PLAIN, at_ms: int = 8_000, **more: object
) -> SendOperation:
    wanted = {"failures": 0, "tag": "a", "weight": 1, **more}
    return SendOperation(name=name, at_ms=at_ms, kind=kind, **wanted)  # type: ignore[arg-type]


def lived(*operations: SendOperation, events: tuple[TimedFaultEvent, ...] = ()) -> TimedWorkload:
    day = msgspec.structs.replace(QUIET, operations=operations, events=events)

    async def live(day: TimedScenario) -> TimedWorkload:
        world = TimedWorkload(day)
        await world.run()
        return world

    with isolated_clients():
        return clock.run(live(day), seed=day.seed)


def test_hours_pass_in_a_moment() -> None:
    began = time.perf_counter()
    world = lived(operation("e0", SendKind.TIMER, wait_ms=2 * HOUR_MS))
    assert world.is_settled
    assert world.clock.monotonic_ms() > 2 * HOUR_MS
    assert time.perf_counter() - began < 60  # of a machine that is busy; it takes one


def test_each_group_gets_what_it_wants() -> None:
    world = lived(
        operation("e0"),
        operation("e1", tag="b"),
        operation("e2", SendKind.LEVEL, level=1, wait_ms=1_000),
    )
    assert world.history.handled == {BILLING: {"e0", "e1", "e2"}, AUDIT: {"e0", "e2"}}
    assert world.waiting() == []


def test_transactions_end_as_their_course_says() -> None:
    world = lived(
        *(
            operation(course.name, SendKind.TRANSACTION, course=course)
            for course in TransactionCourse
        )
    )
    kept = {"COMMIT", "LATER", "DIES"}
    assert world.history.handled[BILLING] == kept
    assert world.open_halves() == []
    found = logged_messages(world.stores)
    assert [one.name for one in found if one.topic == names.CHECK_MAX_TIME_TOPIC] == ["NEVER"]
    assert world.producer.changes == 1  # both of those that die do so at once


@pytest.mark.parametrize(
    "fault", [TimedFault.CRASH, TimedFault.CHANGE, TimedFault.JOIN, TimedFault.KILL]
)
def test_what_goes_wrong_is_told_and_nothing_is_lost(fault: TimedFault) -> None:
    world = lived(
        operation("e0", SendKind.LEVEL, level=4, wait_ms=30_000),
        events=(TimedFaultEvent(20_000, fault, 0, 4_000),),
    )
    assert world.is_settled
    assert world.history.handled[BILLING] == {"e0"}
