"""Failed, ordered, delayed and popped messages where the genuine Java client has a part in it."""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness import genuine
from harness.java_client import JavaClient, until
from roquet.admin import dead_letters
from roquet.client import ConsumerConfig, Producer, PushConsumer, ReceivedMessage
from roquet.client.config import ConsumeFrom
from roquet.model.message import Message
from roquet.model.topic import SubscriptionGroup
from roquet.net.channel import Channel
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.bodies import POP, RequestMode
from roquet.wire.calls.heartbeat import SetRequestMode
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.interop

SHORT_LEVELS = (1_000,) * 18
"""Our broker's delay levels where a test waits for retries."""


class Attempt(NamedTuple):
    """One attempt at one message, by any member."""

    ms: int
    body: str
    tries: int
    topic: str
    member: str


class RoquetMember:
    """Our member of a group, and what it has handled; it fails as the Java one does."""

    def __init__(self, consumer: PushConsumer) -> None:
        self.consumer = consumer
        self.seen: list[Attempt] = []

    async def handle(self, message: ReceivedMessage) -> None:
        body, now_ms = message.body.decode(), time.time_ns() // 1_000_000
        self.seen.append(Attempt(now_ms, body, message.tries, message.topic, "ours"))
        if body.startswith("fail-always") or (body.startswith("fail-once") and not message.tries):
            raise ValueError(body)


@asynccontextmanager
async def our_broker(folder: Path, **settings: Any) -> AsyncIterator[Cluster]:
    """One broker with its files."""
    async with cluster(store=folder, **settings) as running:
        yield running


@asynccontextmanager
async def our_member(
    namesrv: str, group: str, topic: str, **settings: Any
) -> AsyncIterator[RoquetMember]:
    """A consumer at work."""
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, client_ip="127.0.0.1", **settings)
    async with PushConsumer(namesrv, group=group, topic=topic, config=config) as consumer:
        member = RoquetMember(consumer)
        running = asyncio.create_task(consumer.run(member.handle))
        yield member
        consumer.stop()
        await running


async def send(namesrv: str, topic: str, *bodies: str) -> None:
    async with Producer(namesrv, group="maker") as producer:
        for body in bodies:
            assert (await producer.send(Message(topic, body.encode()))).ok


def java_seen(java: JavaClient, name: str) -> list[Attempt]:
    return [
        Attempt(one.ms, one.body, one.tries, one.topic, name)
        for one in list(java.handled)
        if one.name == name
    ]


def tries_of(seen: Sequence[Attempt]) -> Mapping[str, list[int]]:
    """How often each message had been tried before, in the order in which it came."""
    attempts_by_body: defaultdict[str, list[int]] = defaultdict(list)
    for one in sorted(seen):
        attempts_by_body[one.body].append(one.tries)
    return attempts_by_body


async def dead(namesrv: str, group: str) -> list[str]:
    """The bodies of a group's dead letters, once there are some."""
    letters: list[dead_letters.DeadLetter] = []

    async def are_there() -> bool:
        if group in await dead_letters.groups(namesrv):
            letters[:] = await dead_letters.newest(reader, group, 10)
        return bool(letters)

    async with dead_letters.open_reader(namesrv) as reader:
        await until(are_there)
    return [letter.message.body.decode() for letter in letters]


FAILING = "good", "fail-once", "fail-always"
TRIES = {"good": [0], "fail-once": [0, 1], "fail-always": [0, 1, 2]}


async def test_messages_that_java_fails_are_redelivered_by_our_broker_and_end_as_dead_letters(
    java_member: JavaClient, tmp_path: Path
) -> None:
    async with our_broker(tmp_path, message_delay_levels=SHORT_LEVELS) as running:
        namesrv, java = running.namesrv_addr, "retries"
        await send(namesrv, "JavaRetry", *FAILING)
        await java_member.join(namesrv, "java-retry", "JavaRetry", java, tries=2)
        await until(lambda: tries_of(java_seen(java_member, java)) == TRIES)
        assert await dead(namesrv, "java-retry") == ["fail-always"]
        await java_member.leave(java)
    seen = sorted(java_seen(java_member, java))
    assert {one.topic for one in seen} == {"JavaRetry"}
    times = [one.ms for one in seen if one.body == "fail-always"]
    assert all(later - earlier >= 1_000 for earlier, later in itertools.pairwise(times))


async def test_messages_that_one_member_of_a_mixed_group_fails_are_handled_by_either(
    java_member: JavaClient, tmp_path: Path
) -> None:
    async with our_broker(tmp_path, message_delay_levels=SHORT_LEVELS) as running:
        namesrv, java = running.namesrv_addr, "mixed-retries"
        bodies = [f"fail-once-{number}" for number in range(40)]
        await send(namesrv, "MixedRetry", "good")
        async with our_member(namesrv, "mixed-retry", "MixedRetry", retries_max=5) as ours:
            await java_member.join(namesrv, "mixed-retry", "MixedRetry", java, tries=5)

            async def java_works() -> bool:
                return bool(await java_member.owns(java))

            await until(java_works)
            await send(namesrv, "MixedRetry", *bodies)

            def all_tries() -> Mapping[str, list[int]]:
                return tries_of([*java_seen(java_member, java), *ours.seen])

            wanted = {"good": [0], **{body: [0, 1] for body in bodies}}
            await until(lambda: all_tries() == wanted)
            failed_by = {one.member for one in [*java_seen(java_member, java), *ours.seen]}
            assert failed_by == {java, "ours"}
            await java_member.leave(java)


async def test_messages_that_we_fail_are_redelivered_by_the_apache_broker_and_end_as_dead_letters(
    theirs: genuine.Genuine,
) -> None:
    namesrv = theirs.namesrv
    await send(namesrv, "OurRetry", *FAILING)
    async with our_member(namesrv, "our-retry", "OurRetry", retries_max=2) as ours:
        await until(lambda: tries_of(ours.seen) == TRIES, 60)
        assert await dead(namesrv, "our-retry") == ["fail-always"]
    seen = sorted(ours.seen)
    assert {one.topic for one in seen} == {"OurRetry"}
    times = [one.ms for one in seen if one.body == "fail-always"]
    assert all(later - earlier >= 1_000 for earlier, later in itertools.pairwise(times))


KEYS = 16


async def keep_sending(namesrv: str, enough: asyncio.Event) -> set[str]:
    """Numbered messages of each key, and again, until it is enough."""
    sent: set[str] = set()
    async with Producer(namesrv, group="maker") as producer:
        for number in itertools.count():
            for key in range(KEYS):
                body = f"{key}:{number}"
                await producer.send(Message("Ordered", body.encode(), order_key=f"key-{key}"))
                sent.add(body)
            if enough.is_set():
                break
            await asyncio.sleep(0.1)
    return sent


async def test_each_key_stays_in_order_while_java_joins_and_leaves_an_ordered_group(
    java_member: JavaClient, tmp_path: Path
) -> None:
    async with our_broker(tmp_path) as running:
        namesrv, java = running.namesrv_addr, "ordered"
        await send(namesrv, "Ordered", "warm:0")
        enough = asyncio.Event()
        sending = asyncio.create_task(keep_sending(namesrv, enough))
        async with our_member(namesrv, "ordered", "Ordered", ordered=True) as ours:
            await until(lambda: len(ours.seen) > KEYS)
            await java_member.join(namesrv, "ordered", "Ordered", java, mode="ordered")
            await until(lambda: len(java_seen(java_member, java)) > 5 * KEYS)
            await java_member.leave(java)
            ours_then = len(ours.seen)
            await until(lambda: len(ours.seen) > ours_then + 5 * KEYS)
            enough.set()
            sent = await sending
            await until(
                lambda: sent <= {one.body for one in [*ours.seen, *java_seen(java_member, java)]}
            )
        seen = sorted([*ours.seen, *java_seen(java_member, java)], key=lambda one: one.ms)
    for key in map(str, range(KEYS)):
        numbers = [int(s.body.split(":")[1]) for s in seen if s.body.split(":")[0] == key]
        first_times = list(dict.fromkeys(numbers))
        assert first_times == sorted(first_times), f"key {key}"
        steps = [b - a for a, b in itertools.pairwise(numbers)]
        repeated = [step for step in steps if step < 1]
        assert len(repeated) <= 2, f"key {key} went back other than when its queue changed hands"


async def test_messages_of_java_with_a_delay_level_wait_at_our_broker(
    java_member: JavaClient, tmp_path: Path
) -> None:
    async with our_broker(tmp_path) as running:
        namesrv = running.namesrv_addr
        await send(namesrv, "JavaDelay", "at-once")
        async with our_member(namesrv, "delayed", "JavaDelay") as ours:
            await until(lambda: bool(ours.seen))
            before_ms = time.time_ns() // 1_000_000
            assert await java_member.send(namesrv, "JavaDelay", "later", delay_level=1) == "SEND_OK"
            await until(lambda: len(ours.seen) == 2, 10)
            assert [one.body for one in ours.seen] == ["at-once", "later"]
            assert 1_000 <= ours.seen[1].ms - before_ms < 3_000


async def test_our_messages_with_a_delay_level_wait_at_the_apache_broker(
    java_member: JavaClient, theirs: genuine.Genuine
) -> None:
    namesrv, java = theirs.namesrv, "delayed"
    await send(namesrv, "OurDelay", "at-once")
    await java_member.join(namesrv, "delayed", "OurDelay", java)
    await until(lambda: java_member.bodies(java) == ["at-once"])
    before_ms = time.time_ns() // 1_000_000
    async with Producer(namesrv, group="maker") as producer:
        assert (await producer.send(Message("OurDelay", b"later", delay_level=3))).ok
    await until(lambda: java_member.bodies(java) == ["at-once", "later"])
    assert java_seen(java_member, java)[1].ms - before_ms >= 1_000
    await java_member.leave(java)


async def test_java_pops_from_our_broker_and_failed_messages_come_again(
    java_member: JavaClient, tmp_path: Path
) -> None:
    async with our_broker(tmp_path) as running:
        namesrv, java = running.namesrv_addr, "pops"
        bodies = [f"good-{number}" for number in range(40)]
        await send(namesrv, "Popped", *bodies, "fail-once")
        channel = await Channel.connect("127.0.0.1", running.brokers[0].port)
        group = SubscriptionGroup(group_name="popping")
        await channel.call(CreateGroup(body=codec.dumps(group)))
        mode = RequestMode(topic="Popped", consumer_group="popping", mode=POP)
        await channel.call(SetRequestMode(body=codec.dumps(mode)))
        await channel.close()
        await java_member.join(namesrv, "popping", "Popped", java, mode="pop")
        wanted = {**{body: [0] for body in bodies}, "fail-once": [0, 1]}
        await until(lambda: tries_of(java_seen(java_member, java)) == wanted)
        seen = sorted(java_seen(java_member, java))
        first, again = (one.ms for one in seen if one.body == "fail-once")
        assert again - first >= 1_000
        await send(namesrv, "Popped", "late")
        await until(lambda: "late" in java_member.bodies(java))
        await java_member.leave(java)
        assert tries_of(java_seen(java_member, java)) == {**wanted, "late": [0]}
