"""The same without async, against a real cluster."""

import threading
from collections.abc import Iterator

import pytest

from roquet.client import ConsumeFrom, ConsumerConfig, Message, PullStatus
from roquet.client.blocking import Producer, PullConsumer, PushConsumer, ReceivedMessage
from roquet.model.errors import UsageError
from roquet.testing.cluster import BlockingCluster

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


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
        assert consumer.offset_by_time(queue, 0) == 0
        consumer.commit(queue, 1)
        assert consumer.committed(queue) == 1
        consumer.assign([queue])
        assert consumer.assignment() == [queue]
        consumer.seek(queue, 0)
        (message,) = consumer.fetch(1)
        message.ack()
        assert isinstance(message, ReceivedMessage)
        assert message.queue_offset == 0


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


def test_a_block_that_fails_has_its_message_again(address: str) -> None:
    with Producer(address) as producer:
        producer.send("BlockingAgain", b"x")
    with PushConsumer(address, group="again", topic="BlockingAgain", config=FIRST) as consumer:
        message = consumer.next(10_000)
        assert message is not None
        with pytest.raises(ValueError, match="broken"), message:
            raise ValueError("broken")
        again = consumer.next(10_000)
        assert again is not None
        assert (again.tries, again.body) == (1, b"x")
        again.nack(1)
        last = consumer.next(10_000)
        assert last is not None
        assert last.tries == 2


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
