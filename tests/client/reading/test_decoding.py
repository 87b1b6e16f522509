"""Bodies become values before anybody gets a message; those that cannot are dead letters."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster, filled, until
from tests.conversation.conftest import producer_of, virtual_cluster

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.errors import BodyError, UsageError
from roquet.model.subscription import MessageModel
from roquet.net.router import Peer
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.records.compression import Compression, compress, with_compression

RETRY = "%RETRY%g"
DEAD = "%DLQ%g"


def number(body: bytes) -> int:
    """Bodies of this module are numbers; `bad` is none."""
    return int(body)


class Panic(BaseException):
    """As decoders in Rust raise it."""


@asynccontextmanager
async def decoding(
    decode: Callable[[bytes], Any] = number, **settings: Any
) -> AsyncIterator[tuple[FakeCluster, PushConsumer[Any]]]:
    """A cluster with one queue and a consumer that decodes."""
    async with fake_cluster(t={"a": 1}, **{RETRY: {"a": 1}}) as cluster:

        async def send(call: Send, peer: Peer) -> SendReply:
            is_last = call.reconsume_times > (call.max_reconsume_times or 0)
            assert (call.topic, is_last) == (RETRY, True)
            return await cluster.a.send(msgspec.structs.replace(call, topic=DEAD), peer)

        cluster.a.handlers[Send] = send
        config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
        consumer = PushConsumer(cluster.address, group="g", topic="t", config=config, decode=decode)
        async with consumer:
            yield cluster, consumer


def letters(cluster: FakeCluster) -> list[Send]:
    """Messages that were sent to the retry topic with no try left."""
    assert cluster.a.sent_back == []
    return cluster.a.sends


def reasons(cluster: FakeCluster) -> list[str]:
    texts = [call.properties.partition("DLQ_REASON\x01")[2] for call in letters(cluster)]
    return [text.partition("\x02")[0] for text in texts]


BAD = "ValueError: invalid literal for int() with base 10: b'bad'"


async def test_a_handler_gets_values_and_no_message_without() -> None:
    async with decoding() as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"bad", b"3")
        seen = []

        async def handler(message: ReceivedMessage[int]) -> None:
            seen.append(message.value)

        running = asyncio.create_task(consumer.run(handler))
        await until(lambda: len(seen) == 2 and letters(cluster))
        consumer.stop()
        await running
        assert sorted(seen) == [1, 3]
        assert reasons(cluster) == [BAD]
        assert consumer.undecodable == 1
    assert cluster.a.committed["g", "t", 0] == 3


async def test_a_handler_in_a_thread_decodes_there() -> None:
    threads = set()

    def decode(body: bytes) -> int:
        threads.add(threading.current_thread())
        return int(body)

    async with decoding(decode, concurrency=2) as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"bad", b"3")
        seen: list[int] = []
        running = asyncio.create_task(consumer.run(lambda message: seen.append(message.value)))
        await until(lambda: len(seen) == 2 and letters(cluster))
        consumer.stop()
        await running
        assert sorted(seen) == [1, 3]
    assert threading.current_thread() not in threads


async def test_reads_go_on_behind_what_cannot_be_decoded() -> None:
    async with decoding() as (cluster, consumer):
        cluster.a.put("t", 0, b"bad", b"1", b"bad", b"2", b"3", b"bad", b"4")
        first = await consumer.next()
        assert first is not None
        assert [first.value, *(one.value for one in await consumer.fetch(2))] == [1, 2, 3]
        async for message in consumer:
            assert message.value == 4
            consumer.stop()
        await until(lambda: len(letters(cluster)) == 3)
        assert reasons(cluster) == [BAD] * 3


async def test_a_batch_goes_on_without_what_cannot_be_decoded() -> None:
    async with decoding() as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"bad", b"3", b"bad")
        seen = []

        async def handler(messages: Sequence[ReceivedMessage[int]]) -> None:
            seen.append([message.value for message in messages])

        running = asyncio.create_task(consumer.run_batch(handler, wait_ms=100))
        await until(lambda: len(letters(cluster)) == 2)
        cluster.a.put("t", 0, b"bad")
        await until(lambda: len(letters(cluster)) == 3)
        consumer.stop()
        await running
        assert seen == [[1, 3]], "nobody is called with no message"
    assert cluster.a.committed["g", "t", 0] == 5


async def test_a_batch_that_fails_still_gives_up_what_cannot_be_decoded() -> None:
    async with decoding() as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"bad")

        def handler(_messages: Sequence[ReceivedMessage[int]]) -> None:
            raise OSError("no database")

        running = asyncio.create_task(consumer.run_batch(handler, wait_ms=100))
        await until(lambda: cluster.a.sent_back and cluster.a.sends)
        consumer.stop()
        await running
        assert [call.offset for call in cluster.a.sent_back] == [0]
        assert [call.body for call in cluster.a.sends] == [b"bad"]


async def test_an_ordered_queue_does_not_wait_for_what_cannot_be_decoded() -> None:
    async with decoding(ordered=True) as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"bad", b"3")
        seen = []

        async def handler(message: ReceivedMessage[int]) -> None:
            seen.append(message.value)

        running = asyncio.create_task(consumer.run(handler))
        await until(lambda: len(seen) == 2)
        consumer.stop()
        await running
        assert seen == [1, 3]
        assert reasons(cluster) == [BAD]


@pytest.mark.parametrize(
    "error", [Panic("index out of bounds"), asyncio.CancelledError(), RecursionError()], ids=repr
)
async def test_whatever_a_decoder_raises_is_a_reason(error: BaseException) -> None:
    def decode(_body: bytes) -> int:
        raise error

    async with decoding(decode) as (cluster, consumer):
        cluster.a.put("t", 0, b"1")
        assert await consumer.next(timeout_ms=5_000) is None
        (reason,) = reasons(cluster)
        assert reason.startswith(type(error).__name__)


@pytest.mark.parametrize("error", [TimeoutError("registry"), MemoryError()], ids=repr)
async def test_a_passing_fault_lets_a_message_come_again(error: Exception) -> None:
    faults = [error]

    def decode(body: bytes) -> int:
        if faults:
            raise faults.pop()
        return int(body)

    async with decoding(decode) as (cluster, consumer):
        cluster.a.put("t", 0, b"1")
        assert await consumer.next(timeout_ms=5_000) is None
        assert [call.delay_level for call in cluster.a.sent_back] == [0]
        assert cluster.a.sends == []
        assert consumer.undecodable == 0


async def test_a_passing_fault_in_a_batch_is_that_of_one_message() -> None:
    def decode(body: bytes) -> int:
        if body == b"bad":
            raise TimeoutError
        return int(body)

    async with decoding(decode) as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"bad")
        seen = []

        async def handler(messages: Sequence[ReceivedMessage[int]]) -> None:
            seen.append([message.value for message in messages])

        running = asyncio.create_task(consumer.run_batch(handler, wait_ms=100))
        await until(lambda: cluster.a.sent_back)
        consumer.stop()
        await running
        assert (seen, [call.offset for call in cluster.a.sent_back]) == ([[1]], [100])


async def test_the_end_of_the_program_is_no_reason() -> None:
    def decode(_body: bytes) -> int:
        raise KeyboardInterrupt

    async with decoding(decode) as (cluster, consumer):
        filled(cluster, 1)
        await asyncio.sleep(1)
        with pytest.raises(KeyboardInterrupt):
            await consumer.next(timeout_ms=5_000)
        with pytest.raises(KeyboardInterrupt):
            await consumer.next(timeout_ms=5_000)
        assert (cluster.a.sends, cluster.a.sent_back) == ([], [])


async def test_a_value_may_be_none_and_is_made_once() -> None:
    calls: list[bytes] = []

    async with decoding(calls.append) as (cluster, consumer):
        filled(cluster, 1)
        message = await consumer.next()
        assert message is not None
        assert (message.value, message.value, calls) == (None, None, [b"0"])


async def test_a_broadcast_message_is_handed_out_without_a_value(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    settings = {"message_model": MessageModel.BROADCASTING, "offsets_dir": tmp_path}
    async with decoding(**settings) as (cluster, consumer):
        await asyncio.sleep(1)
        cluster.a.put("t", 0, b"bad", b"2")
        first, second = await consumer.fetch(2)
        assert (first.body, second.value) == (b"bad", 2)
        with pytest.raises(BodyError, match="cannot be decoded: ValueError"):
            _ = first.value
        with pytest.raises(BodyError):
            _ = first.value
        assert consumer.undecodable == 1
    said = [one for one in caplog.messages if "handed out without a value" in one]
    assert len(said) == 1
    assert cluster.a.sends == []


async def test_a_broadcast_message_without_a_value_reaches_no_handler(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    settings = {"message_model": MessageModel.BROADCASTING, "offsets_dir": tmp_path}
    async with decoding(**settings) as (cluster, consumer):
        await asyncio.sleep(1)
        cluster.a.put("t", 0, b"bad", b"2")
        seen = []

        async def handler(message: ReceivedMessage[int]) -> None:
            seen.append(message.value)
            consumer.stop()

        await consumer.run(handler)
        assert seen == [2]
    assert sum("failed and is dropped" in one for one in caplog.messages) == 1


async def test_a_compressed_body_is_decoded_and_a_damaged_one_is_a_dead_letter() -> None:
    flag = with_compression(0, Compression.ZLIB)
    async with decoding() as (cluster, consumer):
        cluster.a.store("t", 0, compress(b"1"), b"", flag)
        cluster.a.store("t", 0, b"no zlib", b"", flag)
        cluster.a.put("t", 0, b"3")
        assert [one.value for one in await consumer.fetch(2)] == [1, 3]
        await until(lambda: letters(cluster))
        (letter,) = letters(cluster)
        assert (letter.body, letter.sys_flag & flag) == (b"no zlib", flag)
        assert reasons(cluster)[0].startswith("RecordError: body is not zlib")


async def test_a_letter_that_no_broker_takes_as_a_whole_is_sent_back_without_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with fake_cluster(t={"a": 1}) as cluster:  # no route for the retry topic
        config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST)
        consumer = PushConsumer(cluster.address, group="g", topic="t", config=config, decode=number)
        async with consumer:
            cluster.a.put("t", 0, b"bad")
            assert await consumer.next(timeout_ms=10_000) is None
            assert [call.delay_level for call in cluster.a.sent_back] == [-1]
    assert any("is given up without its reason" in one for one in caplog.messages)


async def test_a_letter_that_nobody_takes_is_decoded_and_given_up_again() -> None:
    async with decoding() as (cluster, consumer):
        cluster.a.faults = [ConnectionError()] * 2  # of the retry topic
        cluster.a.back_faults = [ConnectionError()] * 2
        cluster.a.put("t", 0, b"bad", b"2")
        message = await consumer.next()
        assert message is not None
        assert message.value == 2
        assert await consumer.next(timeout_ms=60_000) is None
        assert cluster.a.bodies(DEAD, 0) == [b"bad"]
        assert consumer.undecodable == 2


async def coroutine(body: bytes) -> int:
    return int(body)


@pytest.mark.parametrize("decode", [coroutine, 3, "int"], ids=["async", "number", "text"])
def test_only_a_plain_function_decodes(decode: Any) -> None:
    with pytest.raises(UsageError, match=r"decode is a (plain )?function"):
        PushConsumer("127.0.0.1:9876", group="g", decode=decode)


async def test_a_pull_consumers_user_gives_up_what_cannot_be_decoded() -> None:
    """With the decoder's reason, too: he asks for the dead letter, and no handler skips it."""
    async with virtual_cluster() as running:
        async with producer_of(running) as producer:
            await producer.send("t", b"bad")
        config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST)
        reader = PullConsumer(running.namesrv_addr, group="g", config=config, decode=number)
        async with reader:
            await reader.subscribe("t")
            (message,) = await reader.fetch(1)
            await message.dead_letter(message.undecodable)
            await asyncio.sleep(10)
            (dead,) = await reader.queues(DEAD)
            (letter,) = (await reader.pull(dead, 0)).messages
            assert letter.properties["DLQ_REASON"] == BAD
