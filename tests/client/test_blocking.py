"""The blocking client against a real cluster."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from roquet import client
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    ProducerConfig,
    PullStatus,
    StoredMessage,
    TransactionState,
    blocking,
)
from roquet.client.blocking import (
    PopConsumer,
    PoppedMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from roquet.client.connection.chosen_pauses import ChosenPauses
from roquet.client.reading import message as inbound
from roquet.client.reading.handler_result import fail_message
from roquet.model.errors import CodecMissing, UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import BlockingCluster
from roquet.wire.records import record
from roquet.wire.records.compression import Compression, compress, with_compression

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


async def test_a_client_in_a_coroutine_is_warned_of_once_at_the_users_line(address: str) -> None:
    def work() -> None:
        with Producer(address) as producer:
            producer.send("BlockingSend", b"in a coroutine")

    with pytest.warns(RuntimeWarning, match="its event loop") as warned:
        work()
    line = work.__code__.co_firstlineno + 1
    assert [(one.filename, one.lineno) for one in warned] == [(__file__, line)]


def test_what_is_sent_can_be_pulled(address: str) -> None:
    with Producer(address, group="shop") as producer:
        receipt = producer.send("BlockingSend", b"hello", tag="new", keys="k")
        producer.send_oneway("BlockingSend", b"one way", order_key="o")
        batch = producer.send_batch([Message("BlockingSend", b"%d" % n) for n in range(3)])
        many = producer.send_many(Message("BlockingSend", b"%d" % n) for n in range(100))
        assert receipt.ok
        assert batch.ok
        assert len(many) == 100
        assert "@" in producer.client_id
    with PullConsumer(address, group="audit") as consumer:
        queue = receipt.queue
        assert queue in consumer.queues("BlockingSend")
        result = consumer.pull(queue, receipt.queue_offset, 1)
        assert result.status is PullStatus.FOUND
        assert result.messages[0].message_id == receipt.message_id
        assert consumer.min_offset(queue) == 0
        assert consumer.max_offset(queue) > receipt.queue_offset
        assert consumer.offset_by_time(queue, datetime(2000, 1, 1, tzinfo=UTC)) == 0
        consumer.commit(queue, 1)
        assert consumer.committed(queue) == 1
        consumer.assign([queue])
        assert consumer.assignment() == [queue]
        consumer.seek(queue, 0)
        (message,) = consumer.fetch(1)
        message.ack()
        assert isinstance(message, ReceivedMessage)
        assert message.queue_offset == 0


def test_each_calling_thread_has_its_own_turns(address: str) -> None:
    seen: dict[int, list[int]] = {}
    together = threading.Barrier(3)

    with Producer(address) as producer:
        producer.send("BlockingTurns", b"x")

        def work(number: int) -> None:
            together.wait()
            seen[number] = [producer.send("BlockingTurns", b"x").queue.queue_id for _ in range(10)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    for queues in seen.values():
        assert queues == [(queues[0] + n) % 4 for n in range(10)]
    assert len(seen) == 3


def test_a_selector_chooses_without_async_too(address: str) -> None:
    with Producer(address) as producer:
        send = producer.send("BlockingSelect", b"x", selector=lambda queues, _: queues[2])
        batch = producer.send_batch(
            [Message("BlockingSelect", b"x")] * 2, selector=lambda queues, _: queues[1]
        )
        assert (send.queue.queue_id, batch.queue.queue_id) == (2, 1)
        producer.send_oneway("BlockingSelect", b"x", selector=lambda queues, _: queues[0])
        with pytest.raises(UsageError, match="none of the 4 queues"):
            producer.send("BlockingSelect", b"x", selector=lambda queues, _: None)  # type: ignore[arg-type,return-value]


def test_a_pop_consumers_handler_gets_messages_that_it_can_extend(address: str) -> None:
    seen: list[bytes] = []
    consumer = PopConsumer(address, group="popping", topic="BlockingPop", config=FIRST)

    def handler(message: PoppedMessage) -> None:
        message.extend(60_000)
        message.ack()
        seen.append(message.body)
        consumer.stop()

    with Producer(address) as producer, consumer:
        producer.send("BlockingPop", b"x")
        consumer.run(handler)
    assert seen == [b"x"]


def test_a_pop_consumers_handler_may_give_a_message_back_without_a_try(address: str) -> None:
    tries: list[int] = []
    consumer = PopConsumer(address, group="suspending", topic="BlockingSuspend", config=FIRST)

    def handler(message: PoppedMessage) -> None:
        tries.append(message.tries)
        if len(tries) == 1:
            message.suspend(1)
        else:
            consumer.stop()

    with Producer(address) as producer, consumer:
        producer.send("BlockingSuspend", b"x")
        consumer.run(handler)
    assert tries == [0, 0]


def test_messages_are_handled_in_threads_until_another_one_closes(address: str) -> None:
    seen: list[bytes] = []
    threads: set[str] = set()
    with Producer(address) as producer:
        producer.send_many(Message("BlockingRun", b"%d" % n) for n in range(200))
    consumer = PushConsumer(address, group="billing", config=FIRST)
    consumer.on_assigned(lambda queues: threads.add(f"{len(queues)} queues"))
    consumer.on_revoked(lambda queues: None)
    consumer.subscribe("BlockingRun")
    consumer.subscribe("BlockingOther")
    consumer.unsubscribe("BlockingOther")

    def handler(message: ReceivedMessage) -> None:
        with message:
            seen.append(message.body)
            threads.add(threading.current_thread().name[:7])
            if len(seen) == 200:
                consumer.stop()

    with consumer:
        running = threading.Thread(target=consumer.run, args=(handler,))
        running.start()
        running.join(20)
    assert not running.is_alive()
    assert sorted(map(int, seen)) == list(range(200))
    assert threads == {"roquet-", "4 queues"}
    assert consumer.subscriptions == {"BlockingRun": "*"}
    assert "@" in consumer.client_id


def test_batches_are_handled_in_threads_and_single_messages_told_apart(address: str) -> None:
    seen: list[str] = []
    with Producer(address) as producer:
        producer.send_many(Message("BlockingBatch", b"%d" % n) for n in range(20))
    consumer = PushConsumer(address, group="batches", topic="BlockingBatch", config=FIRST)

    def handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if message.body == b"7" and not message.tries:
                message.nack(1_000)
            else:
                seen.append(message.body.decode())
        if len(seen) == 20:
            consumer.stop()

    with consumer:
        consumer.run_batch(handler, size=50, wait_ms=100)
    assert sorted(seen, key=int) == [str(n) for n in range(20)]
    assert seen[-1] == "7"


def test_what_is_around_a_handler_gets_its_blocking_message(address: str) -> None:
    seen: list[object] = []

    @contextmanager
    def noted(message: ReceivedMessage) -> Iterator[None]:
        seen.append(type(message))
        yield
        message.ack()
        consumer.stop()

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, around=[noted])
    with Producer(address) as producer:
        producer.send("BlockingAround", b"x")
    with PushConsumer(address, group="around", topic="BlockingAround", config=config) as consumer:
        consumer.run(lambda _message: None)
    assert seen == [ReceivedMessage]


def test_values_are_sent_and_received(address: str) -> None:
    seen: list[object] = []

    @contextmanager
    def noted(sent: Message[int] | list[Message[int]]) -> Iterator[None]:
        seen.append(len(sent) if isinstance(sent, list) else sent.body)
        yield

    config = ProducerConfig(around=[noted])
    with Producer[int](address, config=config, encode=lambda n: b"%d" % n) as producer:
        producer.send("BlockingValues", 1)
        producer.send_many(Message("BlockingValues", number) for number in (2,))
        producer.send_oneway("BlockingValues", 3)
    assert seen == [1, 1, 3]
    with Producer(address) as plain:
        plain.send("BlockingValues", b"no number")
    with PushConsumer(
        address, group="values", topic="BlockingValues", config=FIRST, decode=int
    ) as consumer:
        numbers = set()

        def handler(message: ReceivedMessage[int]) -> None:
            numbers.add(message.value)
            if len(numbers) == 3:
                consumer.stop()

        consumer.run(handler)
        assert numbers == {1, 2, 3}
        assert consumer.undecodable <= 1


def test_a_consumer_is_iterated_itself(address: str) -> None:
    with Producer(address) as producer:
        producer.send("BlockingIterated", b"x")
    with PushConsumer(address, group="it", topic="BlockingIterated", config=FIRST) as consumer:
        for message in consumer:
            with message:
                assert message.stored_at.tzinfo is UTC
            consumer.stop()


def test_a_loop_over_messages_acknowledges_by_blocks(address: str) -> None:
    with Producer(address) as producer:
        producer.send_many(Message("BlockingLoop", b"%d" % n, order_key="o") for n in range(5))
    with PushConsumer(address, group="loop", topic="BlockingLoop", config=FIRST) as consumer:
        seen = []
        for message in consumer.messages():
            with message:
                seen.append(message.body)
            if len(seen) == 5:
                break
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
    with PushConsumer(address, group="loop", topic="BlockingLoop", config=FIRST) as consumer:
        assert consumer.next(500) is None


def test_delayed_and_failed_messages_come_again_or_become_dead_letters(address: str) -> None:
    with Producer(address) as producer:
        producer.send("BlockingAgain", b"x")
    with PushConsumer(address, group="again", topic="BlockingAgain", config=FIRST) as consumer:
        message = consumer.next(10_000)
        assert message is not None
        with pytest.raises(UsageError, match="delay_ms: -1 is less than 0"):
            message.nack(-1)
        message.nack(1)
        again = consumer.next(20_000)
        assert again is not None
        assert (again.tries, again.body, again.topic) == (1, b"x", "BlockingAgain")
        with pytest.raises(UsageError, match="a reason is a str, not 3"):
            again.dead_letter(3)  # type: ignore[arg-type]
        again.dead_letter("no such article")
        assert consumer.next(500) is None
    with PullConsumer(address, group="look") as look:
        (queue,) = look.queues("%DLQ%again")
        (letter,) = look.pull(queue, 0).messages
        assert (letter.body, letter.properties["DLQ_REASON"]) == (b"x", "no such article")
    with PushConsumer(address, group="fail", topic="BlockingAgain", config=FIRST) as consumer:
        message = consumer.next(10_000)
        assert message is not None
        with pytest.raises(ValueError, match="broken"), message:
            raise ValueError("broken")
        assert consumer.next(100) is None


def test_an_async_handler_may_run_there_too(address: str) -> None:
    done = threading.Event()
    with Producer(address) as producer:
        producer.send("BlockingAsync", b"x")
    with PushConsumer(address, group="async", topic="BlockingAsync", config=FIRST) as consumer:

        async def handler(message: object) -> None:
            done.set()

        running = threading.Thread(target=consumer.run, args=(handler,))
        running.start()
        assert done.wait(20)
        consumer.close()
        running.join(10)


def test_errors_come_through(address: str) -> None:
    producer = Producer(address)
    with pytest.raises(UsageError, match="not started"):
        producer.send("t", b"x")


def test_queues_can_be_paused_sought_and_measured(address: str) -> None:
    with Producer(address) as producer:
        producer.send_many(Message("BlockingSeek", b"%d" % n, order_key="o") for n in range(5))
    with PushConsumer(address, group="seek", topic="BlockingSeek", config=FIRST) as consumer:
        consumer.on_lost(lambda queues: None)
        first = consumer.next(10_000)
        assert first is not None
        queue = first.queue
        assert consumer.lag()[queue] == 5
        consumer.pause(queue)
        assert consumer.paused() == [queue]
        consumer.seek(queue, 3)
        consumer.resume(queue)
        assert [m.body for m in consumer.fetch(2)] == [b"3", b"4"]
        consumer.seek_to_begin(queue)
        assert [m.body for m in consumer.fetch(1)] == [b"0"]
        consumer.seek_to_time(queue, 0)
        consumer.seek_to_end(queue)
        assert consumer.next(200) is None


def test_polls_are_acknowledged_by_a_commit(address: str) -> None:
    with Producer(address) as producer:
        producer.send_many(Message("BlockingPoll", b"%d" % n, order_key="o") for n in range(5))
    with PullConsumer(address, group="poll", config=FIRST) as consumer:
        consumer.subscribe("BlockingPoll")
        messages = consumer.poll(5, 10_000)
        consumer.commit()
        assert consumer.committed(messages[0].queue) == messages[-1].queue_offset + 1
        consumer.unsubscribe("BlockingPoll")


def test_a_request_returns_with_what_a_handler_replies(address: str) -> None:
    answered: list[bool] = []

    def answer(message: ReceivedMessage) -> None:
        assert message.wants_reply
        answered.append(message.reply(message.body.upper(), properties={"by": "thread"}))

    with (
        Producer(address) as producer,
        PushConsumer(address, group="b-req", topic="BlockingAsk", config=FIRST) as consumer,
    ):
        producer.send_oneway("BlockingOther", b"x")
        thread = threading.Thread(target=consumer.run, args=(answer,))
        thread.start()
        reply = producer.request("BlockingAsk", b"hello", tag="T", timeout_ms=20_000)
        consumer.stop()
        thread.join()
    assert (reply.body, reply.properties["by"]) == (b"HELLO", "thread")
    assert answered == [True]


def test_a_message_that_waits_is_taken_back() -> None:
    running = BlockingCluster(recall_message=True)
    with running as cluster, Producer(cluster.namesrv_addr) as producer:
        receipt = producer.send("BlockingTimes", b"later", delay=timedelta(hours=1))
        assert receipt.recall_handle
        assert producer.recall("BlockingTimes", receipt.recall_handle) == receipt.message_id


def test_transactions_are_the_same_without_async(address: str) -> None:
    def check(message: StoredMessage) -> TransactionState:
        raise AssertionError(f"nobody should ask about {message}")

    with TransactionProducer(address, group="blocking_tx", check=check) as producer:
        with producer.transaction("BlockingTx", b"yes", keys="k") as tx:
            assert tx.receipt.ok
        with pytest.raises(ValueError, match="no"), producer.transaction("BlockingTx", b"no"):
            raise ValueError("no")
        with producer.transaction(Message("BlockingTx", b"not wanted")) as tx:
            tx.rollback()
        done = producer.send_in_transaction(
            "BlockingTx", b"called", local=lambda tx: TransactionState.COMMIT
        )
        assert done.state is TransactionState.COMMIT
        with pytest.raises(UsageError, match="delayed"):
            producer.transaction("BlockingTx", b"m", delay_level=1).__enter__()
        assert producer.send("BlockingTx", b"plain").ok
    with PullConsumer(address, group="audit_tx") as consumer:
        missing = [
            message.body
            for queue in consumer.queues("BlockingTx")
            for message in consumer.pull(queue, 0).messages
        ]
    assert sorted(missing) == [b"called", b"plain", b"yes"]


def test_a_close_sends_what_other_threads_have_lingering(address: str) -> None:
    receipts: list[object] = []
    with Producer(address, config=ProducerConfig(linger_ms=60_000)) as producer:

        def send() -> None:
            receipts.append(producer.send("BlockingLinger", b"x").ok)

        threads = [threading.Thread(target=send) for _ in range(5)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert receipts == []
        assert producer.flush(timeout_ms=5_000)
        for thread in threads:
            thread.join(5)
        assert receipts == [True] * 5


def test_types_of_constructor_arguments_are_in_the_same_module() -> None:
    shared = {"ConsumeFrom", "ConsumerConfig", "Message", "ProducerConfig"}
    assert shared <= set(blocking.__all__)
    assert all(getattr(blocking, name) is getattr(client, name) for name in shared)


class Settlement:
    """Owner of messages in this thread: records how they are settled."""

    is_held = True

    def __init__(self, backoff: Any = None) -> None:
        self.delays: list[int | None] = []
        self.context = inbound.MessageContext(pauses=ChosenPauses(backoff))

    def retry(self, message: object, delay_ms: int | None) -> None:
        self.delays.append(delay_ms)

    def pair(self, body: bytes = b"x", flag: int = 0) -> tuple[ReceivedMessage, Any]:
        """A message as a plain `def` gets it, and that of the pool."""
        host = bytes((10, 0, 0, 1, 0, 0, 42, 159))
        raw = record.pack(0, 0, 0, 0, flag, 1, host, 2, host, 0, 0, body, b"t", b"")
        owner: Any = self
        inner = inbound.ReceivedMessage(MessageQueue("t", "a", 0), record.decode(raw), owner)
        thread: Any = SimpleNamespace(
            loop=SimpleNamespace(call_soon_threadsafe=lambda call, *given: call(*given))
        )
        return ReceivedMessage(inner, thread), inner


@pytest.mark.parametrize("way", ["handler", "nack", "with"])
def test_a_message_waits_for_the_package_of_its_body(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, flag = compress(b"x", Compression.ZSTD, 1), with_compression(0, Compression.ZSTD)
    owner = Settlement()
    message, inner = owner.pair(body, flag)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CodecMissing) as missing, message if way == "with" else nullcontext():
        len(message.body)
    if way == "handler":
        fail_message(inner, missing.value)
    elif way == "nack":
        message.nack(5)
    assert owner.delays == [inbound.UNREADABLE]


def test_a_backoff_gets_the_error_of_the_block() -> None:
    errors: list[BaseException | None] = []

    def backoff(_attempt: int, error: BaseException | None) -> float:
        errors.append(error)
        return 7.0

    owner, fault = Settlement(backoff), ValueError("no order")
    with pytest.raises(ValueError, match="no order"), owner.pair()[0]:
        raise fault
    assert (errors, owner.delays) == ([fault], [7_000])
