"""A group shares its queues: members join, leave and die, and every message is handled."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.conversation.conftest import Member, producer_of, remote_cluster

from roquet.client import Message, Producer, ReceivedMessage
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from simulation.hosts import Hosts


@asynccontextmanager
async def started(brokers: int = 2, **settings: Any) -> AsyncIterator[tuple[Cluster, Producer]]:
    """A cluster, and somebody who sends."""
    async with (
        remote_cluster(brokers=brokers, **settings) as running,
        producer_of(running) as producer,
    ):
        yield running, producer


def numbered(count: int, keys: int = 10, start: int = 0) -> Sequence[Message]:
    return [
        Message("t", b"%d:%d" % (n % keys, n), order_key=f"k{n % keys}")
        for n in range(start, start + count)
    ]


def bodies(messages: Sequence[Message]) -> set[bytes]:
    return {message.body for message in messages}


async def test_eight_queues_are_rebalanced_when_a_member_joins_and_one_is_killed() -> None:
    hosts = Hosts(this_loop())
    async with started() as (running, producer):
        sent = numbered(600)
        await producer.send_many(sent[:200])
        members = [await Member(running, 0.05, hosts=hosts).start() for _ in range(2)]
        await asyncio.sleep(2)
        assert [member.count for member in members] == [4, 4]
        await producer.send_many(sent[200:400])
        members.append(await Member(running, 0.05, hosts=hosts).start())
        await asyncio.sleep(2)
        assert sorted(member.count for member in members) == [2, 3, 3]
        await producer.send_many(sent[400:])
        await asyncio.sleep(0.2)
        await members[0].kill()
        await asyncio.sleep(60)
        assert [member.count for member in members[1:]] == [4, 4]
        seen = [body for member in members for body in member.seen]
        assert set(seen) == bodies(sent)
        twice = sum(times - 1 for times in Counter(seen).values())
        assert twice < 300
        for member in members[1:]:
            await member.close()


async def test_a_member_that_closes_causes_no_duplicates() -> None:
    async with started() as (running, producer):
        sent = numbered(400)
        await producer.send_many(sent)
        await asyncio.sleep(1)
        first = await Member(running, 0.01).start()
        await asyncio.sleep(0.1)
        await first.close()
        assert 0 < len(first.seen) < 400
        second = await Member(running, 0.01).start()
        await asyncio.sleep(30)
        assert Counter(first.seen + second.seen) == Counter(bodies(sent))
        await second.close()


async def test_one_running_member_keeps_the_order_of_each_key() -> None:
    async with started() as (running, producer):
        sent = numbered(1_000)
        await producer.send_many(sent)
        member = await Member(running, concurrency=1).start()
        await asyncio.sleep(10)
        await member.close()
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for body in member.seen:
            key, number = body.split(b":")
            by_key[key].append(int(number))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        assert sum(map(len, by_key.values())) == 1_000


async def test_a_handler_that_raises_is_called_again_until_it_does_not() -> None:
    class Fussy(Member):
        async def handle(self, message: ReceivedMessage) -> None:
            self.seen.append(message.body)
            if message.tries < 2 and message.body.endswith(b"7"):
                raise ValueError("not yet")

    async with started() as (running, producer):
        sent = numbered(50)
        await producer.send_many(sent)
        member = await Fussy(running).start()
        await asyncio.sleep(50)  # 10 s until the first retry, 30 s until the second
        await member.close()
        expected = {body: 3 if body.endswith(b"7") else 1 for body in bodies(sent)}
        assert Counter(member.seen) == expected
        again = await Member(running).start()
        await asyncio.sleep(5)
        await again.close()
        assert again.seen == []


async def test_a_consumer_may_start_before_its_topic() -> None:
    async with started() as (running, producer):
        member = await Member(running).start()
        await asyncio.sleep(100)
        sent = numbered(20)
        await producer.send_many(sent)
        await asyncio.sleep(5)
        assert set(member.seen) == bodies(sent)
        await member.close()


async def test_a_broker_that_starts_again_is_read_and_written_on(tmp_path: Path) -> None:
    async with started(brokers=1, store=tmp_path) as (running, producer):
        member = await Member(running).start()
        await producer.send_many(numbered(20))
        await asyncio.sleep(2)
        await running.stop_broker(0)
        await asyncio.sleep(20)
        await running.start_broker(0)
        await asyncio.sleep(35)
        sent = numbered(20, start=100)
        await producer.send_many(sent)
        await asyncio.sleep(35)
        assert bodies(sent) <= set(member.seen)
        await member.close()


async def test_messages_sent_while_members_come_and_go_are_all_handled() -> None:
    hosts = Hosts(this_loop())
    async with started() as (running, producer):
        rng = Random(5)
        members = [await Member(running, 0.002, hosts=hosts).start()]
        gone: list[Member] = []
        sent: list[Message] = []
        for _ in range(12):
            more = numbered(100, start=len(sent))
            sent += more
            await producer.send_many(more)
            await asyncio.sleep(rng.random())
            if rng.random() < 0.5 or len(members) < 2:
                members.append(await Member(running, 0.002, hosts=hosts).start())
            else:
                gone.append(members.pop(rng.randrange(len(members))))
                await (gone[-1].kill() if rng.random() < 0.5 else gone[-1].close())
        await asyncio.sleep(60)
        seen = {body for member in members + gone for body in member.seen}
        assert seen == bodies(sent)
        assert sum(member.count for member in members) == 8
        for member in members:
            await member.close()
