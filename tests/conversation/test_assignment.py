"""The broker divides a group's queues, and hands them over without a message handled twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conversation.conftest import send_of

from roquet.broker.app import BrokerServer
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
from roquet.model.topic import READ_WRITE
from roquet.net.channel import Channel
from roquet.net.clock import Clock
from roquet.net.router import Peer, Router
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.bodies import AssignmentQuery, LockBody, LockedQueues, QueueAssignments
from roquet.wire.calls.heartbeat import (
    ConsumersChanged,
    Heartbeat,
    LockQueues,
    QueryAssignment,
    Unregister,
)
from roquet.wire.calls.offset import QueryOffset, UpdateOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


class Member:
    """A bare client of one broker: it does only what a test says."""

    def __init__(self, client_id: str, channel: Channel, notices: list[str], clock: Clock) -> None:
        self.client_id = client_id
        self.notices = notices
        self.channel = channel
        self._clock = clock

    @classmethod
    async def of(cls, broker: BrokerServer, client_id: str) -> "Member":
        router, notices, clock = Router(), list[str](), this_loop().clock

        def hear(call: ConsumersChanged, _peer: Peer) -> None:
            notices.append(call.consumer_group)

        router.add(ConsumersChanged, hear)
        channel = await Channel.connect("127.0.0.1", broker.port, router=router, clock=clock)
        member = cls(client_id, channel, notices, clock)
        await member.join()
        return member

    async def join(self) -> None:
        wishes = [Subscription(topic="orders")]
        data = ConsumerData(group_name="billing", subscription_data_set=wishes)
        body = HeartbeatData(client_id=self.client_id, consumer_data_set=[data])
        await self.channel.call(Heartbeat(body=codec.dumps(body)))

    async def leave(self) -> None:
        call = Unregister(client_id=self.client_id, consumer_group="billing")
        await self.channel.call(call)

    async def share(self, strategy: str) -> tuple[set[MessageQueue], int]:
        """Its queues, and the number of the decision."""
        asked = AssignmentQuery(
            topic="orders",
            consumer_group="billing",
            client_id=self.client_id,
            strategy_name=strategy,
        )
        reply = await self.channel.call(QueryAssignment(body=codec.dumps(asked)))
        found = codec.loads(reply.body, QueueAssignments).message_queue_assignments
        assert found is not None
        number = int((found[0].attachments or {})["snapshot"]) if found else 0
        return {one.message_queue for one in found}, number

    async def takes(self, queue_id: int) -> tuple[int, int]:
        """Asks where to read a queue: the offset, and how long the answer took."""
        began_ms = self._clock.monotonic_ms()
        call = QueryOffset(consumer_group="billing", topic="orders", queue_id=queue_id)
        reply = await self.channel.call(call, 5_000)
        return reply.offset, self._clock.monotonic_ms() - began_ms

    async def commits(self, queue_id: int, offset: int) -> None:
        call = UpdateOffset(
            consumer_group="billing", topic="orders", queue_id=queue_id, commit_offset=offset
        )
        await self.channel.call(call)

    async def locks(self, *queues: MessageQueue) -> list[MessageQueue]:
        body = LockBody(consumer_group="billing", client_id=self.client_id, mq_set=list(queues))
        reply = await self.channel.call(LockQueues(body=codec.dumps(body)))
        return codec.loads(reply.body, LockedQueues).lock_ok_mq_set


@asynccontextmanager
async def orders(*queues: int, messages: int = 0) -> AsyncIterator[Cluster]:
    """A topic with so many queues on each of some brokers, and messages in each queue of it."""
    clock = this_loop().clock
    async with cluster(brokers=len(queues), clock=clock, auto_create_topic=False) as running:
        for broker, count in zip(running.brokers, queues, strict=True):
            await fill(broker, count, messages)
        await clock.sleep(1_000)
        yield running


async def fill(broker: BrokerServer, count: int, messages: int) -> None:
    async with await Channel.connect("127.0.0.1", broker.port, clock=this_loop().clock) as channel:
        await channel.call(
            CreateTopic(
                topic="orders", read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
            )
        )
        for number in range(messages * count):
            await channel.call(send_of(b"x", number % count, topic="orders"))


async def shares(members: list[Member], strategy: str) -> list[set[MessageQueue]]:
    """Everybody's queues; each has one owner and all have seen the same decision."""
    found = await asyncio.gather(*(member.share(strategy) for member in members))
    owned = [queue for share, _ in found for queue in share]
    assert len(owned) == len(set(owned))
    assert len({number for share, number in found if share}) == 1
    return [share for share, _ in found]


async def test_a_group_is_divided_over_the_queues_of_all_brokers() -> None:
    async with orders(4, 4) as running:
        members = [await Member.of(running.brokers[0], f"c{n}") for n in range(3)]
        before = await shares(members, "STICKY")
        assert sorted(map(len, before)) == [2, 3, 3]
        assert {queue.broker_name for share in before for queue in share} == {
            "broker-a",
            "broker-b",
        }
        members.append(await Member.of(running.brokers[0], "c3"))
        after = await shares(members, "STICKY")
        assert list(map(len, after)) == [2, 2, 2, 2]
        assert all(late <= early for early, late in zip(before, after, strict=False)), "2 moved"
        await members[0].leave()
        rest = await shares(members[1:], "STICKY")
        assert all(early <= late for early, late in zip(after[1:], rest, strict=True))


async def test_only_the_first_broker_by_name_decides() -> None:
    async with orders(2, 2) as running:
        member = await Member.of(running.brokers[1], "c0")
        with pytest.raises(CallRefused, match="broker-a, not broker-b") as refused:
            await member.share("STICKY")
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_new_queues_are_assigned_and_all_members_are_notified() -> None:
    async with orders(2) as running:
        members = [await Member.of(running.brokers[0], f"c{n}") for n in range(2)]
        before = await shares(members, "STICKY")
        await fill(running.brokers[0], 4, 0)
        members[1].notices.clear()
        await members[0].share("STICKY")
        await this_loop().clock.sleep(10)
        assert members[1].notices == ["billing"]
        after = await shares(members, "STICKY")
        assert all(early <= late for early, late in zip(before, after, strict=True))
        assert list(map(len, after)) == [2, 2]


async def test_lag_on_another_broker_counts_for_the_assignment() -> None:
    async with orders(1, 1) as running:
        await fill(running.brokers[0], 3, 40)
        await fill(running.brokers[1], 1, 200)
        members = [await Member.of(running.brokers[0], f"c{n}") for n in range(2)]
        found = await shares(members, "LAG_WEIGHTED")
        assert sorted(map(len, found)) == [1, 3], "forty in each of three queues, 200 in one"


async def test_a_broker_that_does_not_report_lag_delays_no_assignment() -> None:
    async with orders(2, 2) as running:
        members = [await Member.of(running.brokers[0], f"c{n}") for n in range(2)]
        await running.stop_broker(1)
        began_ms = this_loop().clock.monotonic_ms()
        assert sum(map(len, await shares(members, "LAG_WEIGHTED"))) in (2, 4)
        assert this_loop().clock.monotonic_ms() - began_ms < 1_000


async def test_the_first_strategy_is_used_while_members_differ() -> None:
    async with orders(4) as running:
        first, second = [await Member.of(running.brokers[0], f"c{n}") for n in range(2)]
        one, number = await first.share("STICKY")
        other, same = await second.share("LAG_WEIGHTED")
        assert number == same
        assert not one & other
        await first.leave()
        _, later = await second.share("LAG_WEIGHTED")
        assert later == number + 1


async def test_the_taker_reads_on_where_the_loser_stopped() -> None:
    async with orders(1, messages=9) as running:
        loser = await Member.of(running.brokers[0], "c0")
        await loser.takes(0)
        await loser.commits(0, 3)
        taker = await Member.of(running.brokers[0], "c1")
        taking = asyncio.create_task(taker.takes(0))
        await this_loop().clock.sleep(300)
        assert not taking.done()
        await loser.commits(0, 7)
        offset, took_ms = await taking
        assert offset == 7
        assert 300 <= took_ms < 320


async def test_the_taker_waits_a_second_for_all_its_queues_and_no_more() -> None:
    async with orders(3, messages=9) as running:
        loser = await Member.of(running.brokers[0], "c0")
        for queue_id in range(3):
            await loser.takes(queue_id)
        taker = await Member.of(running.brokers[0], "c1")
        took = [(await taker.takes(queue_id))[1] for queue_id in range(3)]
        assert 1_000 <= sum(took) < 1_050


async def test_a_new_owner_does_not_wait_if_no_commit_can_come() -> None:
    async with orders(4, messages=2) as running:
        first = await Member.of(running.brokers[0], "c0")
        waits = [(await first.takes(0))[1]]  # a first start
        await first.takes(1)
        await first.commits(1, 2)
        second = await Member.of(running.brokers[0], "c1")
        waits.append((await second.takes(1))[1])  # all is read
        await first.takes(2)
        await first.channel.close()
        await this_loop().clock.sleep(10)
        waits.append((await second.takes(2))[1])  # the owner is dead
        third = await Member.of(running.brokers[0], "c2")
        waits.append((await third.takes(3))[1])  # nobody had it
        assert max(waits) < 20


async def test_a_loser_that_dies_is_waited_for_no_longer() -> None:
    async with orders(1, messages=9) as running:
        loser = await Member.of(running.brokers[0], "c0")
        await loser.takes(0)
        taker = await Member.of(running.brokers[0], "c1")
        taking = asyncio.create_task(taker.takes(0))
        await this_loop().clock.sleep(100)
        await loser.channel.close()
        assert (await taking)[1] < 150


async def test_a_broker_that_stops_lets_takers_go() -> None:
    async with orders(1, messages=9) as running:
        loser = await Member.of(running.brokers[0], "c0")
        await loser.takes(0)
        taker = await Member.of(running.brokers[0], "c1")
        taking = asyncio.create_task(taker.takes(0))
        await this_loop().clock.sleep(100)
        await running.stop_broker(0)
        assert (await taking)[1] < 200


async def test_locks_of_a_killed_member_are_free_at_once() -> None:
    async with orders(1) as running:
        queue = MessageQueue("orders", "broker-a", 0)
        first = await Member.of(running.brokers[0], "c0")
        second = await Member.of(running.brokers[0], "c1")
        assert await first.locks(queue) == [queue]
        assert await second.locks(queue) == []
        first.channel.drop("killed")
        await this_loop().clock.sleep(50)
        assert await second.locks(queue) == [queue]
