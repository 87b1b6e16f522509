"""What our client can do against Apache RocketMQ 5.5.0: order, delays, tags, pop, resets, more."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness import genuine
from harness.java_client import until
from roquet.admin import dead_letters, group_fork, groups, messages, offset_reset, topics, why_late
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    MessageModel,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    UsageError,
)

pytestmark = pytest.mark.interop
FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


@pytest.fixture
def namesrv(theirs: genuine.Genuine) -> str:
    """Of the genuine broker."""
    return theirs.namesrv


Seen = list[ReceivedMessage]


@asynccontextmanager
async def consuming(
    namesrv: str, topic: str, tags: str = "*", config: ConsumerConfig = FROM_FIRST
) -> AsyncIterator[Seen]:
    """What a consumer of ours gets."""
    seen: Seen = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message)

    group = "of_" + topic
    async with PushConsumer(
        namesrv, group=group, topic=topic, tags=tags, config=config
    ) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        yield seen
        consumer.stop()
        await running


def bodies(seen: Seen) -> list[str]:
    return sorted(message.body.decode() for message in seen)


async def send(namesrv: str, topic: str, *bodies: str, tag: str | None = None) -> None:
    async with Producer(namesrv, group="maker") as producer:
        for body in bodies:
            assert (await producer.send(Message(topic, body.encode(), tag=tag))).ok


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_each_key_stays_in_order(namesrv: str) -> None:
    async with Producer(namesrv, group="maker") as producer:
        for number in range(40):
            key = f"key{number % 4}"
            await producer.send(Message("OurOrder", f"{key}:{number}".encode(), order_key=key))
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, ordered=True)
    async with consuming(namesrv, "OurOrder", config=config) as seen:
        await until(lambda: len(seen) == 40)
    by_key: dict[str, list[int]] = defaultdict(list)
    for message in seen:
        key, place = message.body.decode().split(":")
        by_key[key].append(int(place))
    assert by_key == {f"key{key}": list(range(key, 40, 4)) for key in range(4)}


async def test_delivery_times_are_kept_and_messages_taken_back(namesrv: str) -> None:
    await send(namesrv, "OurTimes", "first")
    async with consuming(namesrv, "OurTimes") as seen, Producer(namesrv) as producer:
        sent_ms = now_ms()
        at = datetime.fromtimestamp(sent_ms / 1_000 + 3, UTC)
        await producer.send("OurTimes", b"at", deliver_at=at)
        await producer.send("OurTimes", b"after", delay=timedelta(seconds=2))
        receipt = await producer.send("OurTimes", b"regretted", delay=timedelta(seconds=4))
        assert receipt.recall_handle is not None
        assert await producer.recall("OurTimes", receipt.recall_handle) == receipt.message_id
        await until(lambda: bodies(seen) == ["after", "at", "first"])
        came_ms = now_ms()
        await asyncio.sleep(2)
    assert bodies(seen) == ["after", "at", "first"]
    assert came_ms - sent_ms >= 2_000


async def test_tags_choose(namesrv: str) -> None:
    for tag in ("red", "blue", "green"):
        await send(namesrv, "OurTags", *(f"{tag}-{number}" for number in range(5)), tag=tag)
    async with consuming(namesrv, "OurTags", "red || green") as seen:
        await until(lambda: len(seen) == 10)
    assert {body.split("-")[0] for body in bodies(seen)} == {"red", "green"}


async def test_each_broadcast_member_gets_everything(namesrv: str, tmp_path: Path) -> None:
    wanted = sorted(f"body-{number}" for number in range(8))
    await send(namesrv, "OurCast", *wanted)
    configs = [
        ConsumerConfig(
            consume_from=ConsumeFrom.FIRST,
            message_model=MessageModel.BROADCASTING,
            offsets_dir=tmp_path / name,
        )
        for name in ("a", "b")
    ]
    async with (
        consuming(namesrv, "OurCast", config=configs[0]) as first,
        consuming(namesrv, "OurCast", config=configs[1]) as second,
    ):
        await until(lambda: bodies(first) == bodies(second) == wanted)


async def test_unacknowledged_popped_messages_come_again(namesrv: str) -> None:
    await send(namesrv, "OurPop", *(f"good-{number}" for number in range(8)), "fail-once")
    tries: dict[str, list[int]] = defaultdict(list)

    async def handle(message: ReceivedMessage) -> None:
        body = message.body.decode()
        tries[body].append(message.tries)
        if body == "fail-once" and not message.tries:
            await message.nack(2_000)

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PopConsumer(namesrv, group="our-pop", topic="OurPop", config=config) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: len(tries) == 9 and len(tries["fail-once"]) == 2)
        consumer.stop()
        await running
    assert tries == {**{f"good-{n}": [0] for n in range(8)}, "fail-once": [0, 1]}


async def test_priorities_choose_the_queue_and_the_order_of_pops(namesrv: str) -> None:
    settings = TopicSettings(read_queues=4, write_queues=4, attributes="+message.type=PRIORITY")
    async with AdminClient(namesrv) as admin:
        await topics.create(admin, "OurPriorities", settings)
        for changes in ({"attributes": {"+priority.factor": "100"}}, {"retry_max_times": 5}):
            await groups.create(admin, "our-priorities", changes)
    async with Producer(namesrv, group="maker") as producer:
        for priority in (0, 1, 2, 3, 9):
            receipt = await producer.send("OurPriorities", b"%d" % priority, priority=priority)
            assert receipt.queue.queue_id == min(priority, 3)
    async with AdminClient(namesrv) as admin:

        async def are_there() -> bool:  # the broker fills its queues a moment later
            found = await topics.show(admin, "OurPriorities")
            return sum(queue.end for queue in found.queues) == 5

        await until(are_there)
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, pop_count=1)
    seen: list[int | None] = []
    async with PopConsumer(
        namesrv, group="our-priorities", topic="OurPriorities", config=config
    ) as consumer:
        while len(seen) < 5 and (message := await consumer.next(30_000)):
            seen.append(message.priority)
            await message.ack()
    assert seen == [3, 9, 2, 1, 0]


async def test_polled_progress_is_kept(namesrv: str) -> None:
    wanted = sorted(f"body-{number}" for number in range(8))
    await send(namesrv, "OurPolls", *wanted)
    for expected, more in ((wanted, "late"), (["late"], "later")):
        seen: Seen = []
        async with PullConsumer(namesrv, group="our-polls", config=FROM_FIRST) as consumer:
            await consumer.subscribe("OurPolls")
            async with asyncio.timeout(40):
                while len(seen) < len(expected):
                    seen += await consumer.poll()
            await consumer.commit()
        assert bodies(seen) == expected
        await send(namesrv, "OurPolls", more)


async def test_messages_are_found_by_key_and_by_both_ids(namesrv: str) -> None:
    async with Producer(namesrv, group="maker") as producer:
        await producer.send(Message("OurFinds", b"other", keys=("k2",)))
        receipt = await producer.send(Message("OurFinds", b"wanted", keys=("k1", "shared")))
    async with AdminClient(namesrv) as admin:

        async def is_there() -> bool:  # the index is written a moment later
            return bool(await messages.by_key(admin, "OurFinds", "shared"))

        await until(is_there)
        for matches in (
            await messages.by_key(admin, "OurFinds", "k1"),
            await messages.by_id(admin, receipt.message_id, "OurFinds"),
            await messages.by_id(admin, receipt.offset_message_id),
        ):
            assert [message.body for message in matches] == [b"wanted"]


@pytest.mark.parametrize("online", [True, False])
async def test_a_group_goes_back_to_the_beginning(namesrv: str, online: bool) -> None:
    topic = f"OurReset{online}"
    wanted = sorted(f"body-{number}" for number in range(8))
    await send(namesrv, topic, *wanted)

    async def go_back() -> None:
        async with AdminClient(namesrv) as admin:
            moves = await offset_reset.plan(
                admin, "of_" + topic, topic, offset_reset.QueueEdge.FIRST
            )
            await offset_reset.reset(admin, "of_" + topic, moves)

    async with consuming(namesrv, topic) as seen:
        await until(lambda: bodies(seen) == wanted)
        if online:
            await go_back()
            await until(lambda: bodies(seen) == sorted(wanted * 2))
    if not online:
        await go_back()
        async with consuming(namesrv, topic) as again:
            await until(lambda: bodies(again) == wanted)


async def test_a_copy_of_a_group_reads_from_a_past_moment_on(namesrv: str) -> None:
    await send(namesrv, "OurFork", "before")
    await asyncio.sleep(1.5)
    moment_ms = now_ms()
    await send(namesrv, "OurFork", "after", "later")
    async with consuming(namesrv, "OurFork") as seen:
        await until(lambda: bodies(seen) == ["after", "before", "later"])
    async with AdminClient(namesrv) as admin:
        await groups.create(admin, "of_OurFork", {"retry_max_times": 3, "consume_enable": False})
        before = (await groups.show(admin, "of_OurFork")).queues
        planned = await group_fork.plan(admin, "of_OurFork", "OurForked", moment_ms)
        await group_fork.fork(admin, planned)
        assert (await groups.show(admin, "of_OurFork")).queues == before
        with pytest.raises(UsageError, match="is there already"):
            await group_fork.plan(admin, "of_OurFork", "OurForked", moment_ms)
    async with PushConsumer(
        namesrv, group="OurForked", topic="OurFork", config=FROM_FIRST
    ) as consumer:
        found = await consumer.fetch(3, timeout_ms=8_000)
    assert sorted(message.body for message in found) == [b"after", b"later"]


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_a_pattern_finds_a_topic_that_is_created_meanwhile(
    namesrv: str, kind: type[PushConsumer | PopConsumer]
) -> None:
    name = f"OurPattern{kind.__name__}"
    await send(namesrv, f"{name}-a", "before")
    consumer = kind(namesrv, group="of_" + name, topic=re.compile(f"{name}-.*"), config=FROM_FIRST)
    async with consumer:
        for topic, body in ((f"{name}-a", b"before"), (f"{name}-b", b"after")):
            if body == b"after":
                await send(namesrv, topic, "after")
            message = await consumer.next(60_000)
            assert message is not None
            assert (message.topic, message.body) == (topic, body)
            await message.ack()


async def test_why_a_message_was_late_says_what_brokers_know_and_what_nothing_tells(
    namesrv: str,
) -> None:
    async with Producer(namesrv, group="maker") as producer:
        message_id = (await producer.send("OurLate", b"late")).message_id

    async def explained() -> why_late.GroupAccount:
        async with (
            AdminClient(namesrv) as admin,
            messages.MessageViewer(namesrv, group="look") as reader,
        ):
            _, (account,) = await why_late.explain(
                admin, reader, message_id, topic="OurLate", group="of_OurLate"
            )
            return account

    waiting = await explained()
    assert not waiting.is_finished
    assert [event.kind.name for event in waiting.events] == ["BORN", "STORED", "NOW"]
    still_waits = "the group has no member now; it still waits"
    assert any(gap.cause.endswith(still_waits) for gap in waiting.gaps)
    async with PushConsumer(
        namesrv, group="of_OurLate", topic="OurLate", config=FROM_FIRST
    ) as consumer:
        for settled in (ReceivedMessage.nack, ReceivedMessage.ack):
            message = await consumer.next(60_000)
            assert message is not None
            await settled(message)
    done = await explained()
    assert done.is_finished
    assert [event.kind.name for event in done.events] == ["BORN", "STORED", "RETRIED", "PASSED"]
    assert any("ConsumerConfig" in text for text in done.not_known)


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_what_cannot_be_decoded_is_a_dead_letter_with_the_reason(
    namesrv: str, kind: type[PushConsumer[int] | PopConsumer[int]]
) -> None:
    topic = f"Decoded{kind.__name__}"
    group = "of_" + topic
    async with Producer(namesrv, group="maker", encode=str.encode) as producer:
        for body in ("bad", "17"):
            assert (await producer.send(topic, body)).ok
    async with kind(namesrv, group=group, topic=topic, config=FROM_FIRST, decode=int) as consumer:
        message = await consumer.next(30_000)
        assert message is not None
        assert (message.value, message.body_type) == (17, "str")
        await message.ack()
        assert await consumer.next(10_000) is None
    async with dead_letters.open_reader(namesrv) as reader:
        (letter,) = await dead_letters.newest(reader, group, 10)
    assert letter.reason == "ValueError: invalid literal for int() with base 10: b'bad'"
    assert (letter.message.body, letter.origin_topic) == (b"bad", topic)
    letter.to_message()
