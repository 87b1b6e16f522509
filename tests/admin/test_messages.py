from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.admin.conftest import ClusterWithAdmin, open_cluster

from roquet.admin import dead_letters, messages, topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt
from roquet.model.route import BrokerData, TopicRoute
from roquet.wire.calls.query import QueryByKey, QueryReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import encode_properties
from roquet.wire.records.record import pack

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def sent(cluster: ClusterWithAdmin) -> list[SendReceipt]:
    """Six messages a second apart, on two brokers; the even ones have the key `even`."""
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
    await cluster.settle()
    sent = []
    async with Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer:
        for number in range(6):
            keys = ("even", f"n{number}") if number % 2 == 0 else ()
            sent.append(await producer.send("orders", b"%d" % number, keys=keys))
            await cluster.clock.sleep(1_000)
    return sent


async def test_a_message_is_found_by_either_of_its_ids(
    cluster: ClusterWithAdmin, sent: list[SendReceipt]
) -> None:
    (by_own,) = await messages.by_id(cluster.admin, sent[3].message_id, "orders")
    (by_place,) = await messages.by_id(cluster.admin, sent[3].offset_message_id)
    assert by_own == by_place
    assert (by_own.body, by_own.broker_name) == (b"3", sent[3].queue.broker_name)
    (again,) = await messages.by_id(cluster.admin, sent[3].offset_message_id, "orders")
    assert again == by_own


async def test_messages_of_a_key_come_from_all_brokers_in_order_of_time(
    cluster: ClusterWithAdmin, sent: list[SendReceipt]
) -> None:
    found = await messages.by_key(cluster.admin, "orders", "even")
    assert [message.body for message in found] == [b"0", b"2", b"4"]
    times = [message.stored_ms for message in found]
    late = await messages.by_key(cluster.admin, "orders", "even", begin_ms=times[1])
    assert [message.body for message in late] == [b"2", b"4"]
    assert [m.body for m in await messages.by_key(cluster.admin, "orders", "even", count=1)] == [
        b"4"
    ]
    assert await messages.by_key(cluster.admin, "orders", "odd") == []


async def test_messages_of_a_time_are_read_from_every_queue(
    cluster: ClusterWithAdmin, sent: list[SendReceipt]
) -> None:
    config = ClientConfig(clock=cluster.clock)
    async with PullConsumer(cluster.namesrv, group="audit", config=_consumer(config)) as reader:
        (third,) = await messages.by_id(cluster.admin, sent[2].offset_message_id)
        (fifth,) = await messages.by_id(cluster.admin, sent[4].offset_message_id)
        found = messages.by_time(reader, "orders", third.stored_ms, fifth.stored_ms)
        assert sorted([message.body async for message in found]) == [b"2", b"3"]
        begun = messages.by_time(reader, "orders", 0, fifth.stored_ms, each=1)
        assert sorted([message.body async for message in begun]) == [b"0", b"1"]
        queue = MessageQueue("orders", sent[0].queue.broker_name, 0)
        assert (await messages.by_offset(reader, queue, 0)) is not None
        assert (await messages.by_offset(reader, queue, 99)) is None
        with pytest.raises(UsageError, match="no broker has a topic 'ordesr'"):
            await messages.queues(reader, "ordesr")


def _consumer(config: ClientConfig) -> Any:
    from roquet.client.config import ConsumerConfig

    return ConsumerConfig(clock=config.clock)


async def test_an_invalid_id_or_one_of_another_cluster_is_refused(
    cluster: ClusterWithAdmin, sent: list[SendReceipt]
) -> None:
    with pytest.raises(UsageError, match="not 32 or 56"):
        await messages.by_id(cluster.admin, "abc", "orders")
    with pytest.raises(UsageError, match="say the topic, too"):
        await messages.by_id(cluster.admin, sent[0].message_id)
    beyond = sent[0].offset_message_id[:16] + "0" * 8 + "7FFFFFFF"
    assert await messages.by_id(cluster.admin, beyond) == []
    with pytest.raises(UsageError, match="orders"):
        await messages.by_key(cluster.admin, "ordesr", "even")


async def test_a_silent_broker_is_an_error_and_not_an_empty_result(
    cluster: ClusterWithAdmin, sent: list[SendReceipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = AsyncMock(return_value=await cluster.admin.route("orders"))
    await cluster.running.stop_broker(0)
    monkeypatch.setattr(cluster.admin, "route", stale)
    with pytest.raises(ConnectFailed, match="broker-a does not answer"):
        await messages.by_key(cluster.admin, "orders", "even")


async def test_an_unknown_id_with_a_topic_is_not_a_usage_error(
    cluster: ClusterWithAdmin, sent: list[SendReceipt]
) -> None:
    other = sent[0].message_id[:-8] + "00000000"
    assert await messages.by_id(cluster.admin, other, "orders") == []


MIB = 1024 * 1024
BOMBS = 6


@asynccontextmanager
async def bombs(topic: str) -> AsyncIterator[Any]:
    """Messages of four kilobytes that decompress to four megabytes each."""
    async with open_cluster() as it:
        await topics.create(it.admin, topic, TopicSettings(read_queues=1, write_queues=1))
        await it.settle()
        async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
            for _ in range(BOMBS):
                await producer.send(topic, bytes(4 * MIB - 1), keys=("bomb",))
        yield it


def assert_cut(sizes: list[int], notes: list[str]) -> None:
    assert sum(sizes) < messages.BODIES_SIZE_MAX + BOMBS * messages.BODY_START
    assert sizes.count(4 * MIB - 1) == 4
    assert [bool(note) for note in notes] == [size < 4 * MIB - 1 for size in sizes]
    assert notes[-1] == "cut to its first 4,096 bytes"


async def test_bodies_of_a_look_up_are_cut_once_all_together_are_too_long() -> None:
    async with bombs("orders") as it:
        found = await messages.by_key(it.admin, "orders", "bomb")
        assert_cut([len(m.body) for m in found], [m.body_note for m in found])


async def test_bodies_of_dead_letters_that_are_shown_are_cut_and_those_sent_again_are_whole() -> (
    None
):
    async with bombs("%DLQ%g") as it:
        config = ConsumerConfig(clock=it.clock)
        async with dead_letters.open_reader(it.namesrv, config) as reader:
            shown = [letter.message for letter in await dead_letters.newest(reader, "g", 100)]
            assert_cut([len(m.body) for m in shown], [m.body_note for m in shown])
            chosen, _ = await dead_letters.select(reader, "g", dead_letters.DeadLetterFilter())
            assert {len(letter.message.body) for letter in chosen} == {4 * MIB - 1}


def test_a_body_that_cannot_be_restored_is_shown_as_it_is_stored() -> None:
    stored = StoredMessage(
        topic="t", body=b"not zlib", sys_flag=1, queue_id=0, queue_offset=0, position=0, size=99
    )
    shown = messages.BodyLimit().unfolded(stored)
    assert shown.body == b"not zlib"
    assert shown.body_note.startswith("as it is stored: body is not zlib")


async def test_more_messages_of_a_key_than_an_answer_holds_are_found_page_by_page(
    cluster: ClusterWithAdmin,
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
    await cluster.settle()
    async with Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer:
        sent = [Message("orders", b"%d" % n, keys=("k",)) for n in range(300)]
        await producer.send_many(sent)  # many in one millisecond
    found = await messages.by_key(cluster.admin, "orders", "k", count=300)
    assert sorted(int(message.body) for message in found) == list(range(300))
    assert len(await messages.by_key(cluster.admin, "orders", "k", count=100)) == 100


class GenuineBroker:
    """Answers like Apache's broker: `size` of the newest at most, whatever the page key."""

    def __init__(self, stored_ms: list[int], size: int) -> None:
        self.stored_ms, self.size, self.asked = stored_ms, size, 0

    async def known_route(self, topic: str) -> TopicRoute:
        return TopicRoute(
            queue_datas=[],
            broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1"})],
        )

    async def ask(self, address: str, call: QueryByKey) -> QueryReply:
        self.asked += 1
        hosts, text = bytes(8), encode_properties({"KEYS": call.key})
        known = [(at, ms) for at, ms in enumerate(self.stored_ms) if ms <= call.end_timestamp]
        body = b"".join(
            pack(0, 0, at, at, 0, ms, hosts, ms, hosts, 0, 0, b"%d" % at, b"t", text)
            for at, ms in known[-self.size :]
        )
        return QueryReply(body=body, index_last_update_timestamp=0, index_last_update_phyoffset=0)


async def test_an_apache_broker_is_paged_by_time(caplog: pytest.LogCaptureFixture) -> None:
    broker: Any = GenuineBroker([ms // 5 for ms in range(200)], 64)
    found = await messages.by_key(broker, "t", "k", count=500)
    assert [int(message.body) for message in found] == list(range(200))
    assert caplog.text == ""
    crowded: Any = GenuineBroker([1] * 10 + [7] * 100, 64)
    assert len(await messages.by_key(crowded, "t", "k", count=500)) == 64
    assert "a has more messages of one second than the 64 of an answer with key k" in caplog.text


async def test_a_broker_that_fails_to_look_is_no_empty_result(
    cluster: ClusterWithAdmin, sent: list[SendReceipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = CallRefused(ResponseCode.SYSTEM_ERROR, "the disk fails")
    monkeypatch.setattr(cluster.admin, "ask", AsyncMock(side_effect=failed))
    with pytest.raises(CallRefused, match="the disk fails"):
        await messages.by_id(cluster.admin, sent[0].offset_message_id)
