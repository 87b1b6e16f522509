from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from tests.admin.conftest import ClusterWithAdmin, open_cluster

from roquet.admin import groups, offset_reset, topics
from roquet.admin.client import AdminClient
from roquet.admin.offset_reset import QueueEdge, QueueReset
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.wire.call import Call, R, Reply
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.offset_reset import ResetOffset
from roquet.wire.calls.bodies import ResetOffsetBody
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

QUEUE = MessageQueue("orders", "broker-a", 0)


def move(now: int | None, then: int, begin: int = 0, end: int = 10) -> QueueReset:
    return QueueReset(queue=QUEUE, committed=now, target=then, begin=begin, end=end, time_ms=0)


def test_a_reset_counts_redelivered_and_skipped_messages() -> None:
    assert (move(6, 2).redelivered, move(6, 2).skipped) == (4, 0)
    assert (move(2, 6).redelivered, move(2, 6).skipped) == (0, 4)
    assert (move(None, 10, begin=3).redelivered, move(None, 10, begin=3).skipped) == (0, 7)
    assert (move(1, 10, begin=4).skipped, move(5, 5).redelivered) == (6, 0)


async def orders(it: ClusterWithAdmin) -> None:
    """Eight messages a second apart in four queues; a group has handled them all, and is gone."""
    await topics.create(it.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await it.settle()
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        for number in range(8):
            await producer.send("orders", b"%d" % number)
            await it.clock.sleep(1_000)
    async with member(it) as consumer:
        assert len(await bodies(consumer, 8)) == 8


def member(it: ClusterWithAdmin) -> PushConsumer:
    config = ConsumerConfig(clock=it.clock, consume_from=ConsumeFrom.FIRST)
    return PushConsumer(it.namesrv, group="billing", topic="orders", config=config)


async def bodies(consumer: PushConsumer, count: int) -> list[bytes]:
    found = []
    for message in await consumer.fetch(count, 30_000):
        found.append(message.body)
        await message.ack()
    return sorted(found)


async def test_a_plan_changes_nothing(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    moves = await offset_reset.plan(cluster.admin, "billing", "orders", QueueEdge.FIRST)
    assert [(m.committed, m.target, m.redelivered) for m in moves] == [(2, 0, 2)] * 4
    assert (await groups.show(cluster.admin, "billing")).lag == 0


async def test_a_group_without_members_goes_on_at_the_reset_offset(
    cluster: ClusterWithAdmin,
) -> None:
    await orders(cluster)
    moves = await offset_reset.plan(cluster.admin, "billing", "orders", QueueEdge.FIRST)
    await offset_reset.reset(cluster.admin, "billing", moves)
    async with member(cluster) as consumer:
        assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]


async def test_a_group_with_members_goes_on_at_the_reset_offset(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    async with member(cluster) as consumer:
        await cluster.clock.sleep(2_000)
        moves = await offset_reset.plan(cluster.admin, "billing", "orders", QueueEdge.FIRST)
        await offset_reset.reset(cluster.admin, "billing", moves)
        assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]


async def test_a_time_and_single_queues_can_be_chosen(cluster: ClusterWithAdmin) -> None:
    began = cluster.clock.now_ms()
    await orders(cluster)
    by_time = await offset_reset.plan(cluster.admin, "billing", "orders", began + 5_500)
    assert sum(m.redelivered for m in by_time) == 3
    (one,) = await offset_reset.plan(
        cluster.admin, "billing", "orders", QueueEdge.LAST, [("broker-b", 1)]
    )
    assert (one.queue.broker_name, one.queue.queue_id, one.target) == ("broker-b", 1, one.end)
    beyond = await offset_reset.plan(cluster.admin, "billing", "orders", began + 10**9)
    assert [m.target for m in beyond] == [m.end for m in beyond]


async def test_a_new_group_can_be_given_a_place(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    moves = await offset_reset.plan(cluster.admin, "audit", "orders", QueueEdge.LAST)
    assert [m.committed for m in moves] == [None] * 4
    await offset_reset.reset(cluster.admin, "audit", moves)
    again = await offset_reset.plan(cluster.admin, "audit", "orders", QueueEdge.LAST)
    assert [m.committed for m in again] == [m.target for m in moves]


async def test_unknown_topics_and_queues_are_refused(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    with pytest.raises(UsageError, match="no broker has a topic 'ordesr'"):
        await offset_reset.plan(cluster.admin, "billing", "ordesr", QueueEdge.FIRST)
    with pytest.raises(UsageError, match="has no queue 9 on 'broker-a'"):
        await offset_reset.plan(
            cluster.admin, "billing", "orders", QueueEdge.FIRST, [("broker-a", 9)]
        )


async def test_a_reset_that_fails_names_how_many_queues_were_reset(
    cluster: ClusterWithAdmin,
) -> None:
    await orders(cluster)
    moves = await offset_reset.plan(cluster.admin, "billing", "orders", QueueEdge.FIRST)
    await cluster.running.stop_broker(1)
    with pytest.raises(RoquetError, match="2 of 4 queues were reset"):
        await offset_reset.reset(cluster.admin, "billing", moves)


# -- brokers that leave it to the members --------------------------------------------------------

BY_MEMBERS = {"server_side_reset": False}


@asynccontextmanager
async def slow_member(it: ClusterWithAdmin) -> AsyncIterator[PushConsumer]:
    """A member that has handled none of eight messages, while the broker has its progress at 1."""
    await orders(it)
    moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
    await offset_reset.reset(it.admin, "billing", [replace(m, target=1) for m in moves])
    async with member(it) as consumer:
        await it.clock.sleep(2_000)
        yield consumer


async def lag(it: ClusterWithAdmin) -> int:
    lag = (await groups.show(it.admin, "billing")).lag
    assert lag is not None
    return lag


async def test_members_that_move_themselves_skip_nothing() -> None:
    async with open_cluster(**BY_MEMBERS) as it, slow_member(it) as consumer:
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        await offset_reset.reset(it.admin, "billing", moves)
        await it.clock.sleep(2_000)
        assert await lag(it) == 8
        assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]


async def test_a_group_whose_members_no_broker_can_tell_is_moved_by_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are connected to a proxy, and pop."""

    async def is_online(*_: object) -> bool:
        return True

    monkeypatch.setattr(offset_reset, "is_online", is_online)
    async with open_cluster(**BY_MEMBERS) as it:
        await orders(it)
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        await offset_reset.reset(it.admin, "billing", [replace(m, target=1) for m in moves])
        assert await lag(it) == 8 - len(moves)


async def test_members_that_move_themselves_move_in_the_queues_that_are_named() -> None:
    async with open_cluster(**BY_MEMBERS) as it, slow_member(it):
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
    """Have brokers look at the time alone, and reset all queues, as Apache's do."""
    ask = AdminClient.ask

    async def by_time(admin: AdminClient, address: str, call: Call[Reply]) -> Reply:
        if isinstance(call, ResetOffset):
            return await ask(admin, address, replace(call, queue_id=-1, offset=None))
        return await ask(admin, address, call)

    monkeypatch.setattr(AdminClient, "ask", by_time)


def answers_resets(monkeypatch: pytest.MonkeyPatch, offset: int | None) -> None:
    """Have brokers answer resets with this offset of the queue; None: with no queue."""
    ask = AdminClient.ask

    async def answered(admin: AdminClient, address: str, call: Call[R]) -> Reply:
        if not isinstance(call, ResetOffset):
            return await ask(admin, address, call)
        broker = {address: name for name, address in (await admin.brokers()).items()}[address]
        queue = MessageQueue(call.topic, broker, call.queue_id)
        table = {} if offset is None else {queue: offset}
        return Reply(body=codec.dumps(ResetOffsetBody(offset_table=table)))

    monkeypatch.setattr(AdminClient, "ask", answered)


@pytest.mark.parametrize(("target", "left"), [(QueueEdge.FIRST, 8), (QueueEdge.LAST, 0)])
async def test_brokers_that_know_times_alone_move_all_queues(
    monkeypatch: pytest.MonkeyPatch, target: QueueEdge, left: int
) -> None:
    knows_times_alone(monkeypatch)
    async with open_cluster(**BY_MEMBERS) as it, slow_member(it):
        moves = await offset_reset.plan(it.admin, "billing", "orders", target)
        await offset_reset.reset(it.admin, "billing", moves)
        await it.clock.sleep(2_000)
        assert await lag(it) == left


@pytest.mark.parametrize("target", [QueueEdge.FIRST, QueueEdge.LAST])
async def test_brokers_that_know_times_alone_move_no_queue_that_is_not_named(
    monkeypatch: pytest.MonkeyPatch, target: QueueEdge
) -> None:
    knows_times_alone(monkeypatch)
    async with open_cluster(**BY_MEMBERS) as it, slow_member(it):
        moves = await offset_reset.plan(it.admin, "billing", "orders", target, [("broker-a", 1)])
        with pytest.raises(RoquetError, match=r"0 of 1 queues were reset.*can only move all"):
            await offset_reset.reset(it.admin, "billing", moves)
        await it.clock.sleep(2_000)
        assert await lag(it) == 4


async def test_a_broker_that_resets_to_another_offset_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_cluster(**BY_MEMBERS) as it, slow_member(it):
        moves = await offset_reset.plan(it.admin, "billing", "orders", QueueEdge.FIRST)
        answers_resets(monkeypatch, 2)
        with pytest.raises(RoquetError, match=r"0 of 4 .* go on at 2 of .*, not at 0"):
            await offset_reset.reset(it.admin, "billing", moves)
        monkeypatch.undo()
        answers_resets(monkeypatch, None)
        with pytest.raises(RoquetError, match="does not say where the group goes on"):
            await offset_reset.reset(it.admin, "billing", moves)


async def test_offsets_are_not_overwritten_while_a_broker_does_not_tell_who_is_online(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders(cluster)
    resets = await offset_reset.plan(cluster.admin, "billing", "orders", QueueEdge.FIRST)
    ask = AdminClient.ask

    async def asked(admin: AdminClient, address: str, call: Call[R], *rest: int) -> R:
        if isinstance(call, GetConnections):
            raise CallRefused(ResponseCode.NO_PERMISSION, "no")
        return await ask(admin, address, call, *rest)

    monkeypatch.setattr(AdminClient, "ask", asked)
    with pytest.raises(CallRefused, match="code 16: no"):
        await offset_reset.reset(cluster.admin, "billing", resets)
    monkeypatch.undo()
    assert (await groups.show(cluster.admin, "billing")).lag == 0
