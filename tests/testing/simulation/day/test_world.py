"""The world of a day: what its plan asks for is what happens, and quiet time is passed over."""

import time

import msgspec
import pytest

from roquet.model import names
from roquet.testing import clock
from roquet.testing.simulation.day.ledger import AUDIT, BILLING
from roquet.testing.simulation.day.plan import (
    HOUR_MS,
    Course,
    Day,
    Errand,
    Event,
    Kind,
    Mishap,
    plan,
)
from roquet.testing.simulation.day.stored import found_in
from roquet.testing.simulation.day.world import DayWorld
from roquet.testing.simulation.run import apart

QUIET = msgspec.structs.replace(
    plan(0), brokers=1, queues=1, members=1, network_ms=(0, 3), errands=(), events=()
)


def errand(name: str, kind: Kind = Kind.PLAIN, at_ms: int = 8_000, **more: object) -> Errand:
    wanted = {"failures": 0, "tag": "a", "weight": 1, **more}
    return Errand(name=name, at_ms=at_ms, kind=kind, **wanted)  # type: ignore[arg-type]


def lived(*errands: Errand, events: tuple[Event, ...] = ()) -> DayWorld:
    day = msgspec.structs.replace(QUIET, errands=errands, events=events)

    async def live(day: Day) -> DayWorld:
        world = DayWorld(day)
        await world.run()
        return world

    with apart():
        return clock.run(live(day), seed=day.seed)


def test_hours_pass_in_a_moment() -> None:
    began = time.perf_counter()
    world = lived(errand("e0", Kind.TIMER, wait_ms=2 * HOUR_MS))
    assert world.is_settled
    assert world.clock.monotonic_ms() > 2 * HOUR_MS
    assert time.perf_counter() - began < 60  # of a machine that is busy; it takes one


def test_each_group_gets_what_it_wants() -> None:
    world = lived(
        errand("e0"), errand("e1", tag="b"), errand("e2", Kind.LEVEL, level=1, wait_ms=1_000)
    )
    assert world.ledger.handled == {BILLING: {"e0", "e1", "e2"}, AUDIT: {"e0", "e2"}}
    assert world.waiting() == []


def test_transactions_end_as_their_course_says() -> None:
    world = lived(*(errand(course.name, Kind.TRANSACTION, course=course) for course in Course))
    kept = {"COMMIT", "LATER", "DIES"}
    assert world.ledger.handled[BILLING] == kept
    assert world.open_halves() == []
    found = found_in(world.stores)
    assert [one.name for one in found if one.topic == names.CHECK_MAX_TIME_TOPIC] == ["NEVER"]
    assert world.shop.changes == 1  # both of those that die do so at once


@pytest.mark.parametrize("mishap", [Mishap.CRASH, Mishap.CHANGE, Mishap.JOIN, Mishap.KILL])
def test_what_goes_wrong_is_told_and_nothing_is_lost(mishap: Mishap) -> None:
    world = lived(
        errand("e0", Kind.LEVEL, level=4, wait_ms=30_000),
        events=(Event(20_000, mishap, 0, 4_000),),
    )
    assert world.is_settled
    assert world.ledger.handled[BILLING] == {"e0"}
