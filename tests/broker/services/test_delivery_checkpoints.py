from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, local

from roquet.broker.app import BrokerServer
from roquet.broker.services.delivery_checkpoints import CONFIRM_MS, LOOK_MS, PENDING_MAX
from roquet.broker.services.revive import NOTED_GROUP
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.model.errors import StoreFull
from roquet.model.names import REVIVE_GROUP
from roquet.rules.consumption.pop import OpenCheckpoints, PopCheckpoint
from roquet.store.store import Draft
from roquet.store.timer.layout import TimerCheckpoint, TimerUnit
from roquet.testing.clock import this_loop
from roquet.wire.calls.admin.inspection import AllOffsets, GetAllOffsets, GetDelayOffsets
from roquet.wire.fastjson import codec
from roquet.wire.records.record import decode

pytestmark = pytest.mark.virtual_time

LEVEL = 40
"""A level without messages, which no loop looks at."""


@asynccontextmanager
async def started() -> AsyncIterator[LocalBroker]:
    """A broker that leads, after its first message, all of which is confirmed."""
    async with BrokerServer(BrokerConfig(host="127.0.0.1", port=0), this_loop().clock) as server:
        broker = local(server.broker)
        broker.send()
        broker.delivery.checkpoints.begin()
        yield broker


def deliver(broker: LocalBroker, offset: int) -> None:
    """Store a message that a delay level has delivered, and note the progress."""
    broker.send()
    broker.tables.delay_offsets.advance(LEVEL, offset)
    broker.delivery.checkpoints.note()


def hide_later(broker: LocalBroker) -> None:
    """Let nothing be confirmed of what is stored from now on."""
    broker.log.store.set_confirmed(broker.log.store.end_position)


async def test_confirmed_progress_is_kept() -> None:
    async with started() as broker:
        deliver(broker, 5)
        await broker.delivery.checkpoints.go_back(may_wait=True)
        assert broker.tables.delay_offsets.get(LEVEL) == 5


async def test_a_master_goes_back_to_the_last_progress_that_was_confirmed() -> None:
    async with started() as broker:
        deliver(broker, 5)
        hide_later(broker)
        deliver(broker, 8)
        deliver(broker, 9)
        clock, began_ms = this_loop().clock, this_loop().clock.monotonic_ms()
        await broker.delivery.checkpoints.go_back(may_wait=True)
        assert clock.monotonic_ms() - began_ms == CONFIRM_MS
        assert broker.tables.delay_offsets.get(LEVEL) == 5
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert broker.tables.delay_offsets.get(LEVEL) == 5


async def test_replicas_are_told_of_progress_that_is_confirmed() -> None:
    async with started() as broker:
        hide_later(broker)
        deliver(broker, 5)
        assert codec.loads(broker.ask(GetDelayOffsets()).body, DelayOffsetTable).offset_table == {}
        broker.log.store.set_confirmed(None)
        told = codec.loads(broker.ask(GetDelayOffsets()).body, DelayOffsetTable)
        assert told.offset_table == {LEVEL: 5}
        assert broker.delivery.checkpoints.safe_progress().timer == broker.delivery.timer.checkpoint


async def test_without_a_confirmed_note_it_goes_back_to_where_it_began() -> None:
    async with started() as broker:
        hide_later(broker)
        for offset in range(1, PENDING_MAX + 10):
            deliver(broker, offset)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert broker.tables.delay_offsets.get(LEVEL) == 0
        broker.tables.delay_offsets.advance(LEVEL, 7)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert broker.tables.delay_offsets.get(LEVEL) == 7, "a replica's progress is its master's"


async def test_a_report_in_time_confirms_what_was_delivered() -> None:
    async with started() as broker:
        hide_later(broker)
        deliver(broker, 5)
        this_loop().call_later(0.1, broker.log.store.set_confirmed, None)
        await broker.delivery.checkpoints.go_back(may_wait=True)
        assert broker.tables.delay_offsets.get(LEVEL) == 5


def popped(start: int, **more: int) -> PopCheckpoint:
    """A checkpoint of a pop of one message."""
    fields: dict[str, Any] = {
        "invisible_ms": 60_000, "pop_ms": start, "delivered": 1, "left": 1, **more,
    }  # fmt: skip
    return PopCheckpoint(
        group="g", topic="orders", queue_id=0, start=start, revive_queue_id=0, revive_offset=0,
        **fields,
    )  # fmt: skip


def pop(broker: LocalBroker, start: int, **more: int) -> PopCheckpoint:
    """Pop one message, and let the group go on behind it."""
    checkpoint = popped(start, **more)
    broker.delivery.revive.give(checkpoint, moves_progress=True)
    broker.tables.offsets.commit("g", "orders", 0, start + 1)
    return checkpoint


def told_offsets(broker: LocalBroker, row: str) -> dict[int, int]:
    """A row of the progress of groups that replicas are told."""
    rows = {row: dict(broker.tables.offsets.by_place()).get(row, {})}
    copied = {key: dict(queues) for key, queues in rows.items()}
    broker.delivery.checkpoints.lower(copied)
    return copied[row]


def confirm(broker: LocalBroker, position: int) -> None:
    """Let the log be confirmed up to a position, and note the progress."""
    broker.log.store.set_confirmed(position)
    broker.delivery.checkpoints.note()


async def test_popped_messages_without_a_confirmed_checkpoint_are_popped_again() -> None:
    async with started() as broker:
        offsets, revive = broker.tables.offsets, broker.delivery.revive
        for offset in range(3):
            deliver(broker, offset)
        for start in (0, 2):
            revive.give(popped(start, delivered=3, left=3), moves_progress=True)
            offsets.commit("g", "orders", 0, start + 2)
            broker.delivery.checkpoints.note()
            if start == 0:
                hide_later(broker)
        offsets.commit(REVIVE_GROUP, revive.topic, 0, 1)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert offsets.get("g", "orders", 0) == 2
        list(revive.restoring())
        assert [one.start for one in revive.in_flight] == [0], "a new term begins from the log"


async def test_checkpoints_that_are_only_stored_again_take_no_group_back() -> None:
    async with started() as broker:
        offsets, revive = broker.tables.offsets, broker.delivery.revive
        deliver(broker, 0)
        for start in (0, 1):
            if start == 1:  # for another invisible time
                hide_later(broker)
            revive.give(popped(start), moves_progress=start == 0)
        first = next(iter(revive.in_flight))
        revive.in_flight.moved(first, 2)
        offsets.commit("g", "orders", 0, 1_000)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert offsets.get("g", "orders", 0) == 1_000


async def test_messages_are_popped_again_whatever_became_of_an_unconfirmed_pop() -> None:
    async with started() as broker:
        offsets, revive = broker.tables.offsets, broker.delivery.revive
        for offset in range(4):
            deliver(broker, offset)
        hide_later(broker)
        for start in range(1, 4):
            checkpoint = pop(broker, start)
            if start == 1:  # it is given out for a shorter time
                revive.settle(checkpoint, 1)
                revive.give(popped(start, pop_ms=100))
            else:  # it is revived in this term
                revive.in_flight.settle(checkpoint, 1)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert offsets.get("g", "orders", 0) == 1


async def test_a_checkpoint_that_waited_in_the_timer_moves_a_group_until_it_is_cut() -> None:
    async with started() as broker:
        offsets, revive = broker.tables.offsets, broker.delivery.revive
        deliver(broker, 0)
        revive.give(popped(0))  # that broker has stored it, and this one will take it
        (raw,) = broker.log.store.read(revive.topic, 0, 0).parts
        revive.in_flight = OpenCheckpoints()
        offsets.commit("g", "orders", 0, 0)
        hide_later(broker)
        broker.log.store.append(Draft(revive.topic, 0, b"the same", b""), 1)
        revive.noted(decode(bytes(raw)), 0, 1)
        assert offsets.get("g", "orders", 0) == 1
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert offsets.get("g", "orders", 0) == 0


async def test_replicas_are_told_of_pops_and_revivals_once_they_are_confirmed() -> None:
    async with started() as broker:
        offsets, revive, store = broker.tables.offsets, broker.delivery.revive, broker.log.store
        pops, revived = "orders@g", f"{revive.topic}@{REVIVE_GROUP}"
        for offset in range(3):
            deliver(broker, offset)
        pop(broker, 0)
        broker.delivery.checkpoints.note()
        hide_later(broker)
        pop(broker, 1)
        offsets.commit(REVIVE_GROUP, revive.topic, 0, 0)
        broker.delivery.checkpoints.note()
        assert told_offsets(broker, pops) == {0: 1}
        assert told_offsets(broker, revived) == {}
        assert told_offsets(broker, f"{revive.topic}@{NOTED_GROUP}") == {0: 1}
        edition, end = offsets.edition, store.end_position
        pop(broker, 2)
        offsets.commit(REVIVE_GROUP, revive.topic, 0, 1)
        assert offsets.changed_since(edition).keys() == {
            pops, revived, f"{revive.topic}@{NOTED_GROUP}",
        }  # fmt: skip
        edition = offsets.edition
        confirm(broker, end)
        assert offsets.changed_since(edition).keys() >= {pops, revived}, "they are told again"
        assert (told_offsets(broker, pops), told_offsets(broker, revived)) == ({0: 2}, {0: 0})
        store.set_confirmed(None)
        assert (told_offsets(broker, pops), told_offsets(broker, revived)) == ({0: 3}, {0: 1})


async def test_a_request_for_all_offsets_is_answered_with_confirmed_progress() -> None:
    async with started() as broker:
        deliver(broker, 1)
        hide_later(broker)
        pop(broker, 0)
        for call in (GetAllOffsets(), GetAllOffsets(known_editions="")):
            answer = codec.loads((await broker.ask(call)).body, AllOffsets)
            assert answer.offset_table["orders@g"] == {0: 0}
            noted = f"{broker.delivery.revive.topic}@{NOTED_GROUP}"
            assert answer.offset_table.get(noted, {}) == {}


async def test_saved_progress_of_groups_is_confirmed_and_is_saved_again_later() -> None:
    async with started() as broker:
        offsets = broker.tables.offsets
        deliver(broker, 1)
        hide_later(broker)
        offsets.commit("reader", "orders", 0, 1)
        pop(broker, 0)
        offsets.save()
        assert offsets.content().offset_table["orders@g"] == {0: 0}
        assert offsets.content().offset_table["orders@reader"] == {0: 1}
        assert not offsets.unsaved
        broker.delivery.checkpoints.note()
        confirm(broker, broker.log.store.end_position)
        assert offsets.unsaved
        assert offsets.content().offset_table["orders@g"] == {0: 1}


async def test_a_save_waits_until_all_that_was_delivered_is_confirmed() -> None:
    async with started() as broker:
        checkpoints, store = broker.delivery.checkpoints, broker.log.store
        assert await checkpoints.wait_confirmed()
        hide_later(broker)
        deliver(broker, 5)
        this_loop().call_later(3, store.set_confirmed, store.end_position)
        clock, began_ms = this_loop().clock, this_loop().clock.monotonic_ms()
        assert await checkpoints.wait_confirmed()
        assert 3_000 <= clock.monotonic_ms() - began_ms <= 3_000 + LOOK_MS
        deliver(broker, 6)
        assert not await checkpoints.wait_confirmed(), "it never is"
        this_loop().call_later(1, checkpoints.begin)
        assert not await checkpoints.wait_confirmed(), "another term has begun"
        await checkpoints.go_back(may_wait=False)
        assert await checkpoints.wait_confirmed(), "a replica's progress is its master's"


async def test_delay_levels_and_timer_are_saved_once_their_deliveries_are_confirmed() -> None:
    async with started() as broker:
        delay, timer = broker.delivery.delay, broker.delivery.timer
        hide_later(broker)
        deliver(broker, 5)
        timers = timer.context.timers
        timers.add(TimerUnit(1, timers.read_ms, timers.read_ms + 5_000, 0, 100, 0))
        await delay.save(1)
        await timer.save(1)
        assert broker.tables.delay_offsets.unsaved
        assert timers.unsaved
        assert not timers.is_saved
        broker.log.store.set_confirmed(None)
        await delay.save(2)
        await timer.save(2)
        assert not broker.tables.delay_offsets.unsaved
        assert timers.is_saved


async def test_going_back_is_repeated_when_the_disk_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started() as broker:
        checkpoints, timer = broker.delivery.checkpoints, broker.delivery.timer
        hide_later(broker)
        deliver(broker, 5)
        timer.context.timers.advance_to(timer.context.timers.read_ms + 5_000)
        follow, failures, followed = timer.follow, [StoreFull("no room")], list[bool]()

        async def stumble(checkpoint: TimerCheckpoint) -> None:
            if failures:
                raise failures.pop()
            followed.append(await checkpoints.wait_confirmed())
            await follow(checkpoint)

        monkeypatch.setattr(timer, "follow", stumble)
        with pytest.raises(StoreFull):
            await checkpoints.go_back(may_wait=False)
        await checkpoints.go_back(may_wait=False)
        assert followed == [True], "what has gone back may be saved"
