"""An ordered group across a switch of the master: in order, and with one owner for each queue."""

import asyncio
from itertools import pairwise
from random import Random

import msgspec
import pytest
from tests.broker.replication.role_switches import Switch, asked, designate, kill
from tests.conversation.failover_group import NAMESRV, TOPIC, Group, group

from roquet.broker.tables.locks import LIFETIME_MS
from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer, ReceivedMessage
from roquet.model.errors import CallError
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import Send

QUEUES = 4
HANDLING_S = 0.02


class Handled(msgspec.Struct, frozen=True):
    """One message in the hands of a member."""

    queue_id: int
    offset: int
    member: int
    began_ms: int
    ended_ms: int


class OrderedMember:
    """A member of the group, on a host of its own, that notes when it handles what."""

    def __init__(self, running: Group, number: int, seen: list[Handled]) -> None:
        self.running, self.number, self.seen = running, number, seen
        self.host = f"10.0.4.{number}"
        config = ConsumerConfig(
            clock=running.loop.clock,
            rng=Random(number),
            client_ip=self.host,
            consume_from=ConsumeFrom.FIRST,
            ordered=True,
        )
        self.consumer = PushConsumer(f"{NAMESRV}:9876", group="g", topic=TOPIC, config=config)

    async def start(self) -> None:
        await self.running.hosts.run(self.host, self.consumer.start())
        self.task = self.running.hosts.run(self.host, self.consumer.run(self.handle))

    async def handle(self, message: ReceivedMessage) -> None:
        began_ms = self.running.loop.clock.now_ms()
        await asyncio.sleep(HANDLING_S)
        ended_ms = self.running.loop.clock.now_ms()
        queue_id, offset = message.queue.queue_id, message.queue_offset
        self.seen.append(Handled(queue_id, offset, self.number, began_ms, ended_ms))

    async def close(self) -> None:
        await self.running.hosts.run(self.host, self.consumer.close())
        await self.task


async def produce(running: Group, sent: list[tuple[int, int]], count: int) -> None:
    """Send messages to all queues, one after the other, to whoever leads."""
    while len(sent) < count:
        queue_id = len(sent) % QUEUES
        call = Send(producer_group="p", topic=TOPIC, queue_id=queue_id, born_timestamp=1, body=b"x")
        number = running.master()
        try:
            reply = None if number is None else await asked(running, number, call)
        except (CallError, AssertionError, KeyError):
            reply = None
        if reply is None or reply.code:
            await asyncio.sleep(0.1)
        else:
            sent.append((queue_id, reply.queue_offset or 0))


def owners_at_once(seen: list[Handled], from_ms: int) -> list[tuple[Handled, Handled]]:
    """Pairs of messages of one queue that two members handled at the same time."""
    by_queue = sorted(
        (one for one in seen if one.began_ms >= from_ms),
        key=lambda one: (one.queue_id, one.began_ms),
    )
    return [
        (first, second)
        for first, second in pairwise(by_queue)
        if first.queue_id == second.queue_id
        and first.member != second.member
        and second.began_ms < first.ended_ms
    ]


@pytest.mark.parametrize("switch", [kill, designate])
@in_virtual_time
async def test_an_ordered_group_goes_on_in_order_with_one_owner_for_each_queue(
    switch: Switch,
) -> None:
    async with group() as running:
        number = await running.settled(3)
        topic = CreateTopic(topic=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
        await asked(running, number, topic)
        seen: list[Handled] = []
        sent: list[tuple[int, int]] = []
        members = [OrderedMember(running, number, seen) for number in (1, 2)]
        for member in members:
            await member.start()
        await asyncio.sleep(30)  # both have their queues
        await produce(running, sent, 40)
        await switch(running)
        over_ms = running.loop.clock.now_ms()
        await produce(running, sent, 80)
        await running.loop.clock.sleep(LIFETIME_MS)
        await produce(running, sent, 160)
        await asyncio.sleep(10)
        for member in members:
            await member.close()
        assert set(sent) <= {(one.queue_id, one.offset) for one in seen}, "all come"
        assert owners_at_once(seen, over_ms + LIFETIME_MS) == []
        assert {one.member for one in seen if one.began_ms > over_ms} == {1, 2}
        for queue_id in range(QUEUES):
            late = [
                one.offset
                for one in seen
                if one.queue_id == queue_id and one.began_ms >= over_ms + LIFETIME_MS
            ]
            assert late == sorted(set(late)), "in order, each once"
