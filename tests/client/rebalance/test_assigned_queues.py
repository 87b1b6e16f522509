"""Queues that a consumer reads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import (
    Created,
    FakeBroker,
    config_of,
    consuming,
    fake_cluster,
    next_of,
    reader_context,
    session_of,
)

from roquet.client.config import ConsumerConfig
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import ReceivedMessage, settle
from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.ordered_reader import OrderedReader
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.client.rebalance.rebalancer import Rebalancer
from roquet.model.errors import CallRefused, FieldError, UsageError
from roquet.model.queue import MessageQueue
from roquet.net.router import Peer
from roquet.testing.clock import this_loop
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import encode_properties

QUEUE = MessageQueue("t", "a", 0)
FILTER = SubscriptionFilter.by_tags("t", "*", 1)


@asynccontextmanager
async def assigned_queues_of(
    **settings: Any,
) -> AsyncIterator[tuple[FakeBroker, AssignedQueues, Inbox[ReceivedMessage]]]:
    config: ConsumerConfig = config_of(ConsumerConfig, **settings)
    inbox: Inbox[ReceivedMessage] = Inbox()
    async with (
        fake_cluster(t={"a": 2}) as cluster,
        session_of(cluster.address, config, "t") as session,
    ):
        context = reader_context(session, config, inbox, saves_progress=False)
        queues = AssignedQueues(context, GroupOffsets(session, config, "g"), config)
        yield cluster.a, queues, inbox


async def test_an_offset_is_committed_once_for_each_change() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        broker.put("t", 0, b"x")
        assigned_queues.assign(QUEUE, 0, FILTER)
        message = await inbox.take()
        assert message is not None
        settle(message)
        for _ in range(3):
            await assigned_queues.save()
        await asyncio.sleep(0.1)
        assert [call.commit_offset for call in broker.commits] == [1]


async def test_a_dropped_queue_hands_out_nothing_and_its_offset_is_committed() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        broker.put("t", 0, b"x", b"y")
        assigned_queues.assign(QUEUE, 0, FILTER)
        message = await inbox.take()
        assert message is not None
        settle(message)
        await assigned_queues.release([QUEUE, MessageQueue("t", "a", 9)], save=True)
        assert QUEUE not in assigned_queues
        assert inbox.pop() is None
        assert broker.committed["g", "t", 0] == 1
        with pytest.raises(UsageError, match="t@a:0 is not assigned"):
            assigned_queues.reader(QUEUE)


async def test_a_failed_commit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with assigned_queues_of() as (_broker, assigned_queues, _):
        assigned_queues.assign(MessageQueue("t", "gone", 0), 0, FILTER)
        await assigned_queues.save()
        await assigned_queues.release(list(assigned_queues.readers), save=True)
        assert "progress of t@gone:0 is not saved" in caplog.text


async def test_ordered_settings_make_ordered_readers() -> None:
    async with assigned_queues_of(ordered=True) as (_broker, assigned_queues, _):
        assert isinstance(assigned_queues.assign(QUEUE, 0, FILTER), OrderedReader)


async def test_a_paused_queue_stays_paused_over_a_seek() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        broker.put("t", 0, b"x", b"y")
        assigned_queues.assign(QUEUE, 0, FILTER).pause()
        assigned_queues.seek(QUEUE, 1, FILTER)
        await asyncio.sleep(5)
        assert len(inbox) == 0
        assigned_queues.reader(QUEUE).resume()
        message = await inbox.take()
        assert message is not None
        assert message.body == b"y"


async def test_a_changed_filter_is_used_at_once() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        assigned_queues.assign(QUEUE, 0, SubscriptionFilter.by_tags("t", "A", 1))
        await asyncio.sleep(1)
        assigned_queues.change(SubscriptionFilter.by_tags("t", "B", 2))
        await asyncio.sleep(1)
        assert [call.subscription for call in broker.pulls] == ["A", "B"]
        broker.put("t", 0, b"b", properties=encode_properties({"TAGS": "B"}))
        message = await inbox.take()
        assert message is not None
        assert message.body == b"b"


async def test_a_lag_that_cannot_be_computed_is_an_error() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, _):
        broker.put("t", 0, b"x", b"y")
        assigned_queues.assign(QUEUE, 0, FILTER)
        assert await assigned_queues.lag([QUEUE]) == {QUEUE: 2}
        await broker.server.stop(0)
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            await assigned_queues.lag([QUEUE])


async def test_a_handover_commits_messages_that_finished_meanwhile() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        for body in (b"x", b"y"):
            broker.put("t", 0, body)
        assigned_queues.assign(QUEUE, 0, FILTER)
        message = await inbox.take()
        assert message is not None
        leaving = asyncio.create_task(assigned_queues.hand_over(assigned_queues.drop([QUEUE])))
        await asyncio.sleep(0.2)
        settle(message)
        await leaving
        assert broker.committed["g", "t", 0] == 1


async def test_a_queue_that_is_held_twice_is_read_once() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        first = assigned_queues.assign(QUEUE, 0, FILTER)
        second = assigned_queues.assign(QUEUE, 0, FILTER)
        assert (first.is_held, second.is_held) == (False, True)
        broker.put("t", 0, b"x")
        await asyncio.sleep(1)
        assert len(inbox) == 1


async def test_an_unreadable_reply_stops_no_other_commit(caplog: pytest.LogCaptureFixture) -> None:
    async with assigned_queues_of() as (broker, assigned_queues, _):
        offsets, commit, tell = (
            assigned_queues.offsets,
            assigned_queues.offsets.commit,
            assigned_queues.offsets.commit_nowait,
        )
        other = MessageQueue("t", "a", 1)

        def unless_garbled(act: Callable[..., Any]) -> Any:
            async def save(queue: MessageQueue, offset: int) -> None:
                if queue == QUEUE:
                    raise FieldError("offset: no number")
                await act(queue, offset)

            return save

        offsets.commit, offsets.commit_nowait = unless_garbled(commit), unless_garbled(tell)  # type: ignore[method-assign]
        assigned_queues.assign(QUEUE, 3, FILTER)
        assigned_queues.assign(other, 4, FILTER)
        await assigned_queues.save()
        await asyncio.sleep(0.1)
        assert broker.committed == {("g", "t", 1): 4}
        await assigned_queues.release([QUEUE, other], save=True)
        assert len(broker.commits) == 2
        assert "progress of t@a:0 is not saved" in caplog.text


async def test_a_recreated_topic_is_read_from_its_start(caplog: pytest.LogCaptureFixture) -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        broker.topic_ids["t"] = "1-1"
        broker.committed["g", "t", 0] = 0
        broker.put("t", 0, b"old 0", b"old 1")
        old = assigned_queues.assign(
            QUEUE, await assigned_queues.offsets.start_offset(QUEUE), FILTER
        )
        for _ in range(2):
            assert (await inbox.take()) is not None
        broker.queues["t", 0].clear()
        broker.topic_ids["t"] = "2-2"
        broker.put("t", 0, b"new 0", b"new 1", b"new 2")
        bodies = [message.body for _ in range(3) if (message := await inbox.take())]
        assert bodies == [b"new 0", b"new 1", b"new 2"]
        new = assigned_queues.reader(QUEUE)
        assert (old.is_held, new.topic_id, new.window.committable) == (False, "2-2", 0)
        assert "topic t was deleted and made anew" in caplog.text


async def test_a_missing_topic_is_waited_for() -> None:
    async with assigned_queues_of() as (broker, assigned_queues, inbox):
        broker.topic_ids["t"] = "1-1"
        reader = assigned_queues.assign(
            QUEUE, await assigned_queues.offsets.start_offset(QUEUE), FILTER
        )
        gone = CallRefused(ResponseCode.TOPIC_NOT_EXIST, "not exist")
        broker.pull_faults += [gone, gone]
        broker.put("t", 0, b"x")
        assert (await inbox.take()) is not None
        assert assigned_queues.reader(QUEUE) is reader


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_handler_ends_before_its_message_comes_again(
    created: Created, ordered: bool
) -> None:
    rebalancers = created(Rebalancer)
    at_work: list[bytes] = []
    most: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        at_work.append(message.body)
        most.append(len(at_work))
        await asyncio.sleep(5)
        at_work.remove(message.body)

    async with consuming({"a": 1}, ordered=ordered) as (cluster, consumer):
        cluster.a.put("t", 0, b"x")
        work = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(2)
        began = this_loop().time()
        await rebalancers[-1].reset({QUEUE: 0})
        assert 2 < this_loop().time() - began < 4
        await asyncio.sleep(8)
        assert most == [1, 1]
        consumer.stop()
        await work


async def test_a_reset_waits_10_s_for_a_hanging_handler_as_in_java(created: Created) -> None:
    rebalancers = created(Rebalancer)

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(40)

    for ordered in (False, True):
        async with consuming({"a": 1}, ordered=ordered, close_timeout_ms=1) as (cluster, consumer):
            cluster.a.put("t", 0, b"x")
            work = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(2)
            began = this_loop().time()
            await rebalancers[-1].reset({QUEUE: 0})
            assert 9 < this_loop().time() - began < 11
            consumer.stop()
            work.cancel()
            await asyncio.wait([work])


async def test_a_paused_queue_stays_paused(created: Created) -> None:
    rebalancers = created(Rebalancer)
    async with consuming({"a": 1}) as (cluster, consumer):
        cluster.a.put("t", 0, b"x", b"y")
        await asyncio.sleep(1)
        consumer.pause()
        await rebalancers[-1].reset({QUEUE: 1})
        assert consumer.paused() == [QUEUE]
        assert await consumer.next(1_000) is None
        consumer.resume()
        message = await next_of(consumer, 1_000)
        assert message.body == b"y"


async def test_a_reset_goes_on_when_its_commit_fails(created: Created) -> None:
    rebalancers = created(Rebalancer)
    async with consuming({"a": 1}) as (cluster, consumer):
        cluster.a.put("t", 0, b"x")
        assert await consumer.next() is not None

        def refuse(call: UpdateOffset, peer: Peer) -> None:
            raise CallRefused(1, "no")

        cluster.a.handlers[UpdateOffset] = refuse
        await rebalancers[-1].reset({QUEUE: 0, MessageQueue("t", "z", 9): 0})
        again = await next_of(consumer, 1_000)
        assert again.body == b"x"


async def test_a_topic_unsubscribed_during_a_reset_is_not_assigned_again(created: Created) -> None:
    rebalancers = created(Rebalancer)
    async with consuming({"a": 1}) as (_cluster, consumer):
        await asyncio.sleep(1)
        resetting = asyncio.create_task(rebalancers[-1].reset({QUEUE: 0}))
        consumer.unsubscribe("t")
        await resetting
        await asyncio.sleep(1)
        assert consumer.assignment() == []
