from collections.abc import AsyncIterator

import pytest
from tests.admin.conftest import ClusterWithAdmin, open_cluster

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.facts import messages as facts
from roquet.dashboard.facts.messages import (
    MessageFilter,
    TimeRange,
    json_fields,
    look_up,
    message_at,
    search,
)
from roquet.dashboard.masking import MaskRule
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def it() -> AsyncIterator[ClusterWithAdmin]:
    """Ten messages a second apart on two brokers, tagged `even` and `odd` in turn."""
    async with open_cluster() as it:
        await topics.create(it.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
        await it.settle()
        async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
            for n in range(10):
                await producer.send(
                    "orders",
                    b'{"number": %d, "card": "4111"}' % n,
                    tag="odd" if n % 2 else "even",
                    keys=(f"k{n}",),
                    properties={"amount": str(n)},
                )
                await it.clock.sleep(1_000)
        yield it


@pytest.fixture
async def reader(it: ClusterWithAdmin) -> AsyncIterator[PullConsumer]:
    config = ConsumerConfig(clock=it.clock)
    async with PullConsumer(it.namesrv, group="audit", config=config) as reader:
        yield reader


def keys(messages: object) -> list[str]:
    return [message.key for message in messages]  # type: ignore[attr-defined]


async def test_the_newest_messages_of_all_queues_come_first(reader: PullConsumer) -> None:
    found = await search(reader, "orders", MessageFilter(), (), count=3)
    assert keys(found.messages) == ["k9", "k8", "k7"]
    assert found.problems == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (MessageFilter(tags="even"), ["k8", "k6", "k4", "k2", "k0"]),
        (MessageFilter(sql="amount > 7"), ["k9", "k8"]),
        (MessageFilter(key="k3"), ["k3"]),
        (MessageFilter(text='NUMBER": 6'), ["k6"]),
        (MessageFilter(text="k2", tags="even"), ["k2"]),
        (MessageFilter(tags="none"), []),
    ],
)
async def test_each_part_of_a_filter_counts(
    reader: PullConsumer, wanted: MessageFilter, expected: list[str]
) -> None:
    found = await search(reader, "orders", wanted, ())
    assert keys(found.messages) == expected
    assert found.scanned == 10


async def test_a_search_of_text_cannot_tell_what_a_rule_hides(reader: PullConsumer) -> None:
    wanted, rules = MessageFilter(text="4111"), [MaskRule("*", ("card",))]
    assert len((await search(reader, "orders", wanted, ())).messages) == 10
    assert (await search(reader, "orders", wanted, rules)).messages == []


async def test_a_time_range_gives_its_oldest_messages(reader: PullConsumer) -> None:
    newest = (await search(reader, "orders", MessageFilter(), (), count=6)).messages
    times = TimeRange(newest[5].stored_ms, newest[1].stored_ms)  # k4 to k8, half-open
    found = await search(reader, "orders", MessageFilter(), (), count=3, times=times)
    assert keys(found.messages) == ["k6", "k5", "k4"]


async def test_messages_are_looked_up_by_key_id_and_place(
    it: ClusterWithAdmin, reader: PullConsumer
) -> None:
    (by_key,) = (await look_up(it.admin, "orders", key="k5")).messages
    by_id = await look_up(it.admin, "orders", message_id=f" {by_key.message_id.lower()} ")
    assert [*by_id.messages] == [by_key]
    queue = MessageQueue("orders", by_key.broker_name, by_key.queue_id)
    assert await message_at(reader, queue, by_key.queue_offset) == by_key
    assert await message_at(reader, queue, 99) is None
    with pytest.raises(UsageError, match="no queue"):
        await message_at(reader, MessageQueue("orders", "broker-z", 0), 0)
    with pytest.raises(UsageError, match="one topic"):
        await look_up(it.admin, None, key="k5")


async def test_json_holds_a_body_as_text_or_as_base64(it: ClusterWithAdmin) -> None:
    (message,) = (await look_up(it.admin, "orders", key="k1")).messages
    assert json_fields(message, b"x")["body"] == "x"
    assert json_fields(message, b"\xff")["body_base64"] == b"\xff"


async def test_a_topic_that_nobody_has_is_the_users_mistake(reader: PullConsumer) -> None:
    with pytest.raises(UsageError, match="no broker has a topic"):
        await search(reader, "order", MessageFilter(), ())


async def test_a_search_that_left_out_a_part_of_the_time_says_so(
    reader: PullConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.dashboard.facts.messages.SCAN_MAX", 2)
    found = await search(reader, "orders", MessageFilter(key="k9"), (), times=TimeRange())
    assert found.messages == []
    assert found.problems[0].startswith("the first 2 offsets of each queue were searched")


async def test_a_search_stops_at_its_limit_of_bytes(
    reader: PullConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.dashboard.facts.messages.SCAN_BYTES_MAX", 1)
    found = await search(reader, "orders", MessageFilter(), ())
    assert "the search stopped after" in found.problems[0]


async def test_a_search_stops_by_the_bytes_that_bodies_decompress_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "SCAN_BYTES_MAX", 10_000_000)
    async with open_cluster() as it:
        await topics.create(it.admin, "bombs", TopicSettings(read_queues=1, write_queues=1))
        await it.settle()
        async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
            for _ in range(40):
                await producer.send("bombs", bytes(4_000_000))
        config = ConsumerConfig(clock=it.clock)
        async with PullConsumer(it.namesrv, group="audit", config=config) as reader:
            found = await search(reader, "bombs", MessageFilter(), (), count=40)
        assert found.scanned < 40
        assert any("the search stopped after 9 MiB" in problem for problem in found.problems)
        assert sum(len(message.body) for message in found.messages) < 20_000_000
        assert json_fields(found.messages[0], b"")["body_note"] == "cut to its first 4,096 bytes"
