from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from roquet.admin import groups, offset_reset, topics
from roquet.admin.offset_reset import QueueEdge, QueueReset
from roquet.admin.topics import TopicSettings
from roquet.broker.handlers import reset
from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.model.errors import RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.offset_reset import ResetOffset

QUEUE = MessageQueue("orders", "broker-a", 0)


def move(now: int | None, then: int, begin: int = 0, end: int = 10) -> QueueReset:
    return QueueReset(queue=QUEUE, committed=now, target=then, begin=begin, end=end, time_ms=0)


def test_a_move_says_what_comes_again_and_what_is_skipped() -> None:
    assert (move(6, 2).redelivered, move(6, 2).skipped) == (4, 0)
    assert (move(2, 6).redelivered, move(2, 6).skipped) == (0, 4)
    assert (move(None, 10, begin=3).redelivered, move(None, 10, begin=3).skipped) == (0, 7)
    assert (move(1, 10, begin=4).skipped, move(5, 5).redelivered) == (6, 0)


async def orders(it: Any) -> None:
    """Eight messages a second apart in four queues; a group has handled them all, and is gone."""
    await topics.create(it.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await it.settle()
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        for number in range(8):
            await producer.send("orders", b"%d" % number)
            await it.clock.sleep(1_000)
    async with member(it) as consumer:
        assert len(await bodies(consumer, 8)) == 8


def member(it: Any) -> PushConsumer:
    config = ConsumerConfig(clock=it.clock, consume_from=ConsumeFrom.FIRST)
    return PushConsumer(it.namesrv, group="billing", topic="orders", config=config)


async def bodies(consumer: PushConsumer, count: int) -> list[bytes]:
    found = []
    for message in await consumer.fetch(count, 30_000):
        found.append(message.body)
        await message.ack()
    return sorted(found)


@in_virtual_time
async def test_a_plan_changes_nothing(operating: Any) -> None:
    async with operating() as it:
        await orders(it)
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        assert [(m.committed, m.target, m.redelivered) for m in moves] == [(2, 0, 2)] * 4
        assert (await groups.show(it.admin, "billing")).lag == 0


@in_virtual_time
async def test_a_group_without_members_goes_on_where_it_was_told(operating: Any) -> None:
    async with operating() as it:
        await orders(it)
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        await offset_reset.reset(it.admin, "billing", moves)
        async with member(it) as consumer:
            assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]


@in_virtual_time
async def test_a_group_with_members_goes_on_where_it_was_told(operating: Any) -> None:
    async with operating() as it:
        await orders(it)
        async with member(it) as consumer:
            await it.clock.sleep(2_000)
            moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
            await offset_reset.reset(it.admin, "billing", moves)
            assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]


@in_virtual_time
async def test_a_time_and_single_queues_can_be_chosen(operating: Any) -> None:
    async with operating() as it:
        began = it.clock.now_ms()
        await orders(it)
        by_time = await offset_reset.plan(it.admin, "billing", "orders", began + 5_500)
        assert sum(m.redelivered for m in by_time) == 3
        (one,) = await offset_reset.plan(
            it.admin, "billing", "orders", QueueEdge.LAST, [("broker-b", 1)]
        )
        assert (one.queue.broker_name, one.queue.queue_id, one.target) == ("broker-b", 1, one.end)
        beyond = await offset_reset.plan(it.admin, "billing", "orders", began + 10**9)
        assert [m.target for m in beyond] == [m.end for m in beyond]


@in_virtual_time
async def test_a_new_group_can_be_given_a_place(operating: Any) -> None:
    async with operating() as it:
        await orders(it)
        moves = await offset_reset.plan(it.admin, "audit", "orders", QueueEdge.LAST)
        assert [m.committed for m in moves] == [None] * 4
        await offset_reset.reset(it.admin, "audit", moves)
        again = await offset_reset.plan(it.admin, "audit", "orders", QueueEdge.LAST)
        assert [m.committed for m in again] == [m.target for m in moves]


@in_virtual_time
async def test_what_is_not_there_is_told(operating: Any) -> None:
    async with operating() as it:
        await orders(it)
        with pytest.raises(UsageError, match="no broker has a topic 'ordesr'"):
            await offset_reset.plan(it.admin, "billing", "ordesr", QueueEdge.FIRST)
        with pytest.raises(UsageError, match="has no queue 9 on 'broker-a'"):
            await offset_reset.plan(
                it.admin, "billing", "orders", QueueEdge.FIRST, [("broker-a", 9)]
            )


@in_virtual_time
async def test_half_a_reset_says_how_far_it_went(operating: Any) -> None:
    async with operating() as it:
        await orders(it)
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        await it.running.stop_broker(1)
        with pytest.raises(RoquetError, match="2 of 4 queues were reset"):
            await offset_reset.reset(it.admin, "billing", moves)


# -- brokers that leave it to the members --------------------------------------------------------

BY_MEMBERS = {"server_side_reset": False}


@asynccontextmanager
async def slow_member(it: Any) -> AsyncIterator[PushConsumer]:
    """A member that has handled none of eight messages, while the broker has its progress at 1."""
    await orders(it)
    moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
    await offset_reset.reset(it.admin, "billing", [replace(m, target=1) for m in moves])
    async with member(it) as consumer:
        await it.clock.sleep(2_000)
        yield consumer


async def lag(it: Any) -> int:
    lag: int = (await groups.show(it.admin, "billing")).lag
    return lag


@in_virtual_time
async def test_members_that_move_themselves_skip_nothing(operating: Any) -> None:
    async with operating(**BY_MEMBERS) as it, slow_member(it) as consumer:
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        await offset_reset.reset(it.admin, "billing", moves)
        await it.clock.sleep(2_000)
        assert await lag(it) == 8
        assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]


@in_virtual_time
async def test_members_that_move_themselves_move_in_the_queues_that_are_named(
    operating: Any,
) -> None:
    async with operating(**BY_MEMBERS) as it, slow_member(it):
        for target, then in ((QueueEdge.LAST, 2), (QueueEdge.FIRST, 0)):
            moves = await offset_reset.plan(
                it.admin, "billing", "orders", target, [("broker-a", 1)]
            )
            await offset_reset.reset(it.admin, "billing", moves)
            await it.clock.sleep(2_000)
            found = (await groups.show(it.admin, "billing")).queues
            assert [(q.broker, q.queue_id, q.committed) for q in found if q.topic == "orders"] == [
                ("broker-a", 0, 1),
                ("broker-a", 1, then),
                ("broker-b", 0, 1),
                ("broker-b", 1, 1),
            ]


def knows_times_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have brokers look at the time alone, and tell of all queues, as genuine ones do."""
    targets = reset._targets

    async def by_time(
        message_log: MessageLog, tables: BrokerTables, call: ResetOffset, config: TopicConfig
    ) -> dict[int, int]:
        call = replace(call, queue_id=-1, offset=None)
        return await targets(message_log, tables, call, config)

    monkeypatch.setattr(reset, "_targets", by_time)


@in_virtual_time
@pytest.mark.parametrize(("target", "left"), [(QueueEdge.FIRST, 8), (QueueEdge.LAST, 0)])
async def test_brokers_that_know_times_alone_move_all_queues(
    operating: Any, monkeypatch: pytest.MonkeyPatch, target: QueueEdge, left: int
) -> None:
    knows_times_alone(monkeypatch)
    async with operating(**BY_MEMBERS) as it, slow_member(it):
        moves = await offset_reset.plan(it.admin, "billing", "orders", target)
        await offset_reset.reset(it.admin, "billing", moves)
        await it.clock.sleep(2_000)
        assert await lag(it) == left


@in_virtual_time
@pytest.mark.parametrize("target", [QueueEdge.FIRST, QueueEdge.LAST])
async def test_brokers_that_know_times_alone_move_no_queue_that_is_not_named(
    operating: Any, monkeypatch: pytest.MonkeyPatch, target: QueueEdge
) -> None:
    knows_times_alone(monkeypatch)
    async with operating(**BY_MEMBERS) as it, slow_member(it):
        moves = await offset_reset.plan(it.admin, "billing", "orders", target, [("broker-a", 1)])
        with pytest.raises(RoquetError, match=r"0 of 1 queues were reset.*can only move all"):
            await offset_reset.reset(it.admin, "billing", moves)
        await it.clock.sleep(2_000)
        assert await lag(it) == 4


@in_virtual_time
async def test_a_broker_that_moves_elsewhere_is_told_of(
    operating: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        reset, "_targets", AsyncMock(side_effect=lambda *given: {given[-2].queue_id: 2})
    )
    async with operating(**BY_MEMBERS) as it, slow_member(it):
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        with pytest.raises(RoquetError, match=r"0 of 4 .* go on at 2 of .*, not at 0"):
            await offset_reset.reset(it.admin, "billing", moves)
        monkeypatch.setattr(reset, "_targets", AsyncMock(return_value={}))
        with pytest.raises(RoquetError, match="does not say where the group goes on"):
            await offset_reset.reset(it.admin, "billing", moves)
