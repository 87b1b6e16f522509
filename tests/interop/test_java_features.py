"""What the genuine Java client, the newest and the last 4.x, can do against our broker."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import genuine
from harness.java_client import Handled, JavaClient, java_client, until
from roquet.admin import offset_reset
from roquet.admin.client import AdminClient
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
)
from roquet.testing.cluster import cluster

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=[genuine.VERSION, "4.9.7"])
def java(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    """A process of a Java client; one for all tests of its version."""
    if lack := genuine.missing():
        pytest.skip(lack)
    home = tmp_path_factory.mktemp("features")
    with java_client(home, "Features.java", request.param) as client:
        yield client


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """Our name server's address, with a broker of ours."""
    async with cluster(store=tmp_path, recall_message=True) as running:
        yield running.namesrv_addr


async def sent(java: JavaClient, namesrv: str, topic: str, body: str, *more: str) -> list[str]:
    """What Java says of a message with a tag and key of its own."""
    line = await java.ask("send", namesrv, topic, "java", f"key-of-{body}", body, *more)
    status, *ids = line.split()
    assert status == "SEND_OK"
    return ids


async def stored(namesrv: str, topic: str) -> list[StoredMessage]:
    """All that lies in a topic."""
    messages: list[StoredMessage] = []
    async with PullConsumer(namesrv, group="reader") as consumer:
        for queue in await consumer.queues(topic):
            messages += (await consumer.pull(queue, 0, 100)).messages
    return messages


async def make(namesrv: str, topic: str, *bodies: str, tag: str | None = None) -> None:
    """Messages of ours, so that the topic is there."""
    async with Producer(namesrv, group="maker") as producer:
        for body in bodies:
            assert (await producer.send(Message(topic, body.encode(), tag=tag))).ok


class HandledMessage(NamedTuple):
    """A message that our consumer has handled."""

    body: str
    ms: int
    born_ms: int


@asynccontextmanager
async def consuming(
    namesrv: str, topic: str, **settings: object
) -> AsyncIterator[list[HandledMessage]]:
    """What our consumer gets."""
    seen: list[HandledMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(HandledMessage(message.body.decode(), now_ms(), message.born_ms))

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(namesrv, group="of_" + topic, topic=topic, config=config) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        yield seen
        consumer.stop()
        await running


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def handled(java: JavaClient, name: str) -> list[Handled]:
    return [one for one in list(java.handled) if one.name == name]


async def test_messages_of_the_java_client_are_found_by_key_and_by_both_ids(
    java: JavaClient, namesrv: str
) -> None:
    await make(namesrv, "JavaFinds", "first")
    ids = await sent(java, namesrv, "JavaFinds", "wanted", "colour=red")
    await sent(java, namesrv, "JavaFinds", "other")
    for id_ in ids[:2]:
        assert await java.ask("id", namesrv, "JavaFinds", id_) == "wanted"
    assert await java.ask("key", namesrv, "JavaFinds", "key-of-wanted") == "wanted"
    (message,) = [m for m in await stored(namesrv, "JavaFinds") if m.body == b"wanted"]
    assert (message.tag, message.key, message.properties["colour"]) == (
        "java",
        "key-of-wanted",
        "red",
    )
    assert message.message_id == ids[0]
    assert message.offset_message_id == ids[1]


async def test_batches_and_ordered_keys_of_the_java_client_reach_our_client(
    java: JavaClient, namesrv: str
) -> None:
    await make(namesrv, "JavaOrders", "first")
    assert await java.ask("batch", namesrv, "JavaOrders", "10") == "SEND_OK"
    queues = (await java.ask("order", namesrv, "JavaOrders", "40")).split()
    assert len(set(queues)) == 4
    by_key: dict[str, list[int]] = defaultdict(list)
    messages = await stored(namesrv, "JavaOrders")
    for body in (message.body.decode() for message in messages if b":" in message.body):
        by_key[body.split(":")[0]].append(int(body.split(":")[1]))
    assert by_key == {f"key{key}": list(range(key, 40, 4)) for key in range(4)}
    batch = [message for message in messages if message.tag == "batch"]
    assert [message.body for message in batch] == [b"batch-%d" % n for n in range(10)]


async def test_messages_that_the_java_client_delays_by_level_or_time_wait(
    java: JavaClient, namesrv: str
) -> None:
    await make(namesrv, "JavaLater", "first")
    async with consuming(namesrv, "JavaLater") as seen:
        await sent(java, namesrv, "JavaLater", "level", "DELAY=1")
        at = now_ms() + 2_500
        await sent(java, namesrv, "JavaLater", "at", f"TIMER_DELIVER_MS={at}")
        await sent(java, namesrv, "JavaLater", "after", "TIMER_DELAY_MS=2000")
        await until(lambda: len(seen) == 4, 15)
    received_by_body = {one.body: one for one in seen}
    assert 1_000 <= received_by_body["level"].ms - received_by_body["level"].born_ms < 5_000
    assert 1_000 <= received_by_body["after"].ms - received_by_body["after"].born_ms < 6_000
    assert received_by_body["at"].ms >= at // 1_000 * 1_000


async def test_the_java_client_recalls_a_delayed_message(java: JavaClient, namesrv: str) -> None:
    if java.version != genuine.VERSION:
        pytest.skip(f"rocketmq-client {java.version} cannot take messages back")
    await make(namesrv, "JavaRecalls", "first")
    async with consuming(namesrv, "JavaRecalls") as seen:
        ids = await sent(java, namesrv, "JavaRecalls", "regretted", "TIMER_DELAY_MS=3000")
        await sent(java, namesrv, "JavaRecalls", "meant", "TIMER_DELAY_MS=3000")
        assert await java.ask("recall", namesrv, "JavaRecalls", ids[2]) == ids[0]
        await until(lambda: len(seen) == 2, 15)
        await asyncio.sleep(1)
    assert sorted(one.body for one in seen) == ["first", "meant"]


async def test_the_java_client_gets_our_tagged_ordered_and_delayed_messages(
    java: JavaClient, namesrv: str
) -> None:
    async with Producer(namesrv, group="maker") as producer:
        for number in range(20):
            body, tag = f"key{number % 2}:{number}".encode(), "red" if number % 4 else "blue"
            await producer.send(Message("ToJava", body, tag=tag, order_key=f"key{number % 2}"))
        await producer.send_batch([Message("ToJava", b"batch", tag="blue")] * 3)
        await java.ask("consume", "tags", namesrv, "ToJavaTags", "ToJava", "clustering", "blue||no")
        await java.ask("consume", "order", namesrv, "ToJavaOrder", "ToJava", "orderly", "red")
        await until(lambda: len(handled(java, "tags")) == 8 and len(handled(java, "order")) == 15)
        before_ms = now_ms()
        later = timedelta(seconds=2)
        await producer.send(Message("ToJava", b"timer", tag="blue", delay=later))
        await producer.send(Message("ToJava", b"level", tag="blue", delay_level=1))
        await until(lambda: len(handled(java, "tags")) == 10, 15)
    await java.leave("tags")
    await java.leave("order")
    times = {one.body: one.ms for one in handled(java, "tags")}
    assert times["level"] - before_ms >= 1_000
    assert times["timer"] - before_ms >= 1_000
    by_key: dict[str, list[int]] = defaultdict(list)
    for one in handled(java, "order"):
        by_key[one.body.split(":")[0]].append(int(one.body.split(":")[1]))
    assert by_key == {
        f"key{key}": [n for n in range(20) if n % 4 and n % 2 == key] for key in range(2)
    }
    java.handled.clear()


async def test_each_of_its_broadcast_members_gets_everything(
    java: JavaClient, namesrv: str
) -> None:
    bodies = [f"body-{number}" for number in range(8)]
    await make(namesrv, "JavaBroadcast", "first")
    for name in ("cast-a", "cast-b"):
        await java.ask("consume", name, namesrv, "JavaCast", "JavaBroadcast", "broadcasting", "*")
    await until(lambda: all("first" in java.bodies(name) for name in ("cast-a", "cast-b")))
    await make(namesrv, "JavaBroadcast", *bodies)
    for name in ("cast-a", "cast-b"):
        await until(lambda name=name: set(java.bodies(name)) == {"first", *bodies})
        await java.leave(name)
    java.handled.clear()


async def test_the_java_client_pulls_and_polls_and_its_progress_is_kept(
    java: JavaClient, namesrv: str
) -> None:
    bodies = sorted(f"body-{number}" for number in range(8))
    await make(namesrv, "JavaPulls", *bodies, tag="good")
    await make(namesrv, "JavaPulls", "not-wanted", tag="bad")
    assert await java.ask("bounds", namesrv, "JavaPulls") == "0 9 0"
    assert (await java.ask("pull", namesrv, "JavaPulls", "JavaPulls", "good")).split() == bodies
    async with PullConsumer(namesrv, group="JavaPulls") as consumer:
        queues = await consumer.queues("JavaPulls")
        assert sum([await consumer.committed(queue) or 0 for queue in queues]) == 9
    polled = (await java.ask("poll", namesrv, "JavaPolls", "JavaPulls", "9")).split()
    assert polled == sorted([*bodies, "not-wanted"])
    await make(namesrv, "JavaPulls", "late")
    assert await java.ask("poll", namesrv, "JavaPolls", "JavaPulls", "1") == "late"


async def test_a_reset_reaches_its_member_and_it_begins_again(
    java: JavaClient, namesrv: str
) -> None:
    bodies = [f"body-{number}" for number in range(8)]
    await make(namesrv, "JavaResets", *bodies)
    await java.ask("consume", "reset", namesrv, "JavaResets", "JavaResets", "clustering", "*")
    await until(lambda: sorted(java.bodies("reset")) == bodies)
    async with AdminClient(namesrv) as admin:
        moves = await offset_reset.plan(
            admin, "JavaResets", "JavaResets", offset_reset.QueueEdge.FIRST
        )
        await offset_reset.reset(admin, "JavaResets", moves)
    await until(lambda: sorted(java.bodies("reset")) == sorted(bodies * 2))
    await java.leave("reset")
    java.handled.clear()
