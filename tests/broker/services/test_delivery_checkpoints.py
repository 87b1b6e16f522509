from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.admin import inspection
from roquet.broker.handlers.messages.send import send
from roquet.broker.services.delivery_checkpoints import CONFIRM_MS, PENDING_MAX
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.model.names import REVIVE_GROUP
from roquet.rules.consumption.pop import PopCheckpoint
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.admin.inspection import GetDelayOffsets
from roquet.wire.fastjson import codec

LEVEL = 40
"""A level without messages, which no loop looks at."""


@asynccontextmanager
async def started(message: MakeSend) -> AsyncIterator[Broker]:
    """A broker that leads, after its first message, all of which is confirmed."""
    async with BrokerServer(BrokerConfig(host="127.0.0.1", port=0), this_loop().clock) as server:
        broker = server.broker
        broker.bind(send)(message(), FakePeer())
        broker.delivery.checkpoints.begin()
        yield broker


def deliver(broker: Broker, message: MakeSend, offset: int) -> None:
    """Store a message that a delay level has delivered, and note the progress."""
    broker.bind(send)(message(), FakePeer())
    broker.tables.delay_offsets.advance(LEVEL, offset)
    broker.delivery.checkpoints.note()


def hide_later(broker: Broker) -> None:
    """Let nothing be confirmed of what is stored from now on."""
    broker.log.store.set_confirmed(broker.log.store.end_position)


@in_virtual_time
async def test_confirmed_progress_is_kept(message: MakeSend) -> None:
    async with started(message) as broker:
        deliver(broker, message, 5)
        await broker.delivery.checkpoints.go_back(may_wait=True)
        assert broker.tables.delay_offsets.get(LEVEL) == 5


@in_virtual_time
async def test_a_master_goes_back_to_the_last_progress_that_was_confirmed(
    message: MakeSend,
) -> None:
    async with started(message) as broker:
        deliver(broker, message, 5)
        hide_later(broker)
        deliver(broker, message, 8)
        deliver(broker, message, 9)
        clock, began_ms = this_loop().clock, this_loop().clock.monotonic_ms()
        await broker.delivery.checkpoints.go_back(may_wait=True)
        assert clock.monotonic_ms() - began_ms == CONFIRM_MS
        assert broker.tables.delay_offsets.get(LEVEL) == 5
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert broker.tables.delay_offsets.get(LEVEL) == 5


@in_virtual_time
async def test_replicas_are_told_of_progress_that_is_confirmed(message: MakeSend) -> None:
    async with started(message) as broker:
        hide_later(broker)
        deliver(broker, message, 5)
        handler, call = broker.bind(inspection.delay_offsets), GetDelayOffsets()
        told = codec.loads(handler(call, FakePeer()).body, DelayOffsetTable)
        assert told.offset_table == {}
        broker.log.store.set_confirmed(None)
        told = codec.loads(handler(call, FakePeer()).body, DelayOffsetTable)
        assert told.offset_table == {LEVEL: 5}
        assert broker.delivery.checkpoints.told().timer == broker.delivery.timer.checkpoint


@in_virtual_time
async def test_without_a_confirmed_note_it_goes_back_to_where_it_began(message: MakeSend) -> None:
    async with started(message) as broker:
        hide_later(broker)
        for offset in range(1, PENDING_MAX + 10):
            deliver(broker, message, offset)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert broker.tables.delay_offsets.get(LEVEL) == 0
        broker.tables.delay_offsets.advance(LEVEL, 7)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert broker.tables.delay_offsets.get(LEVEL) == 7, "a replica's progress is its master's"


@in_virtual_time
async def test_a_report_in_time_confirms_what_was_delivered(message: MakeSend) -> None:
    async with started(message) as broker:
        hide_later(broker)
        deliver(broker, message, 5)
        this_loop().call_later(0.1, broker.log.store.set_confirmed, None)
        await broker.delivery.checkpoints.go_back(may_wait=True)
        assert broker.tables.delay_offsets.get(LEVEL) == 5


@in_virtual_time
async def test_popped_messages_without_a_confirmed_checkpoint_are_popped_again(
    message: MakeSend,
) -> None:
    async with started(message) as broker:
        offsets, revive = broker.tables.offsets, broker.delivery.revive
        for offset in range(3):
            deliver(broker, message, offset)
        for start in (0, 2):
            popped = PopCheckpoint(
                group="g", topic="orders", queue_id=0, start=start, pop_ms=start,
                invisible_ms=60_000, delivered=3, left=3, revive_queue_id=0, revive_offset=0,
            )  # fmt: skip
            revive.give(popped, moves_progress=True)
            offsets.commit("g", "orders", 0, start + 2)
            broker.delivery.checkpoints.note()
            if start == 0:
                hide_later(broker)
        offsets.commit(REVIVE_GROUP, revive.topic, 0, 1)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert offsets.get("g", "orders", 0) == 2
        list(revive.restoring())
        assert [one.start for one in revive.in_flight] == [0], "a new term begins from the log"


@in_virtual_time
async def test_checkpoints_that_are_only_stored_again_take_no_group_back(
    message: MakeSend,
) -> None:
    async with started(message) as broker:
        offsets, revive = broker.tables.offsets, broker.delivery.revive
        deliver(broker, message, 0)
        for start in (0, 1):
            popped = PopCheckpoint(
                group="g", topic="orders", queue_id=0, start=start, pop_ms=start,
                invisible_ms=60_000, delivered=1, left=1, revive_queue_id=0, revive_offset=0,
            )  # fmt: skip
            if start == 1:  # for another invisible time
                hide_later(broker)
            revive.give(popped, moves_progress=start == 0)
        first = next(iter(revive.in_flight))
        revive.in_flight.moved(first, 2)
        offsets.commit("g", "orders", 0, 1_000)
        await broker.delivery.checkpoints.go_back(may_wait=False)
        assert offsets.get("g", "orders", 0) == 1_000
