"""Queues, exchanges, acknowledgements and prefetch, through kombu's own classes."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

from roquet.client import Compression, ProducerConfig
from roquet.client.blocking import Producer as PlainProducer
from roquet.client.blocking import PullConsumer
from roquet.model.errors import CallRefused
from roquet.net.clock import SYSTEM_CLOCK
from roquet.wire.codes import ResponseCode


def received(
    connection: Connection, queue: Queue, wait: float = 0.5, limit: int = 100, **named: Any
) -> list[Any]:
    """The messages that a consumer sees within a time, unacknowledged; `limit` are enough."""
    messages: list[Any] = []
    with Consumer(connection, [queue], on_message=messages.append, **named):
        until = SYSTEM_CLOCK.monotonic_ms() / 1000 + wait
        while len(messages) < limit and (left := until - SYSTEM_CLOCK.monotonic_ms() / 1000) > 0:
            try:
                connection.drain_events(timeout=left)
            except TimeoutError:
                break
    return messages


def publish(connection: Connection, queue: Queue, *bodies: Any, **named: Any) -> None:
    producer = Producer(connection.default_channel)
    for body in bodies:
        producer.publish(body, routing_key=queue.name, declare=[queue], **named)


def in_seconds(seconds: float) -> dict[str, str]:
    eta_ms = SYSTEM_CLOCK.now_ms() + int(seconds * 1000)
    return {"eta": datetime.fromtimestamp(eta_ms / 1000, UTC).isoformat()}


def test_a_message_is_gone_once_acknowledged(connection: Connection) -> None:
    queue = Queue("plain")
    publish(connection, queue, {"n": 1})
    (message,) = received(connection, queue, 5, limit=1)
    assert message.payload == {"n": 1}
    assert not message.delivery_info["redelivered"]
    message.ack()
    assert received(connection, queue) == []


def test_what_a_closed_channel_had_not_acknowledged_comes_to_the_next(url: str) -> None:
    queue = Queue("unacknowledged")
    with Connection(url) as first:
        publish(first, queue, 1, 2)
        assert len(received(first, queue)) == 2
    with Connection(url) as second:
        assert sorted(m.payload for m in received(second, queue, 4)) == [1, 2]


def test_a_rejected_message_is_a_dead_letter(url: str, address: str) -> None:
    queue = Queue("rejected")
    with Connection(url) as connection:
        publish(connection, queue, "poison")
        received(connection, queue, 5, limit=1)[0].reject()
        time.sleep(0.2)
        assert received(connection, queue) == []
    with PullConsumer(address, group="audit") as reader:
        namespace = url.rpartition("/")[2]
        (dead,) = reader.queues(f"%DLQ%{namespace}%rejected")
        assert b"poison" in reader.pull(dead, 0).messages[0].body


def test_a_requeued_message_comes_again_marked_as_redelivered(url: str) -> None:
    queue = Queue("requeued")
    with Connection(url, transport_options={"requeue_delay": 0}) as connection:
        publish(connection, queue, 1)
        received(connection, queue, 5, limit=1)[0].requeue()
        (again,) = received(connection, queue, 4)
        assert again.delivery_info["redelivered"]


def test_a_requeued_message_comes_again_soon_and_later_each_further_time(
    connection: Connection,
) -> None:
    queue = Queue("requeued-thrice")
    publish(connection, queue, 1)
    pauses = []
    for _ in range(3):
        (message,) = received(connection, queue, 8, limit=1)
        message.requeue()
        pauses.append(SYSTEM_CLOCK.monotonic_ms())
    (message,) = received(connection, queue, 8, limit=1)
    message.ack()
    pauses.append(SYSTEM_CLOCK.monotonic_ms())
    first, second, third = (b - a for a, b in pairwise(pauses))
    assert 1_000 <= first < 2_500
    assert 2_000 <= second < 3_500
    assert 4_000 <= third < 5_500


@pytest.mark.parametrize("error", [IndexError, ZeroDivisionError])
def test_a_message_whose_consumer_raises_comes_again_and_counts_a_try(
    connection: Connection, error: type[Exception]
) -> None:
    queue = Queue(f"raising-{error.__name__}")
    publish(connection, queue, 1)

    def fail(message: Any) -> None:
        raise error

    with Consumer(connection, [queue], on_message=fail), pytest.raises(error):
        connection.drain_events(timeout=5)
    (again,) = received(connection, queue, 4, limit=1)
    assert again.delivery_info["redelivered"]
    again.ack()


def test_a_channel_holds_no_more_than_its_prefetch_count(url: str) -> None:
    queue = Queue("prefetched")
    with Connection(url) as slow, Connection(url) as other:
        publish(slow, queue, *range(6))
        slow.default_channel.basic_qos(0, 2, False)
        held: list[Any] = []
        with Consumer(slow, [queue], on_message=held.append):
            slow.drain_events(timeout=2)
            while True:
                try:
                    slow.drain_events(timeout=0.3)
                except TimeoutError:
                    break
            assert len(held) == 2
            assert len(received(other, queue, 3)) == 4
            held[0].ack()
            assert len(held) == 2


def test_a_message_is_kept_for_longer_than_its_visibility_timeout(url: str) -> None:
    queue = Queue("kept")
    options = {"visibility_timeout": 4}
    with Connection(url, transport_options=options) as connection, Connection(url) as other:
        publish(connection, queue, 1)
        (message,) = received(connection, queue, 5, limit=1)
        assert received(other, queue, 6) == []
        message.ack()


def test_a_message_acknowledged_during_a_renewal_does_not_come_again(url: str) -> None:
    queue = Queue("renewed")
    with Connection(url) as connection, Connection(url) as other:
        publish(connection, queue, 1)
        (message,) = received(connection, queue)
        channel = connection.default_channel

        async def renew() -> None:
            channel.renewal = asyncio.gather(asyncio.sleep(0.3))

        channel.clients.run(renew())
        message.ack()
        connection.close()
        assert received(other, queue, 2) == []


def test_a_task_with_an_eta_is_no_message_before(connection: Connection) -> None:
    queue = Queue("later")
    due_ms = SYSTEM_CLOCK.monotonic_ms() + 3_000
    publish(connection, queue, 1, headers=in_seconds(3.1))
    early = received(connection, queue, 1.5)
    assert early == [] or SYSTEM_CLOCK.monotonic_ms() >= due_ms  # of a busy machine
    assert len(early or received(connection, queue, 10)) == 1
    assert SYSTEM_CLOCK.monotonic_ms() >= due_ms


def test_a_task_beyond_the_brokers_longest_delay_is_sent_on(url: str) -> None:
    queue = Queue("far")
    with Connection(url, transport_options={"delay_max": 1}) as connection:
        publish(connection, queue, 1, headers=in_seconds(3600))
        assert received(connection, queue, 3.5) == []
        publish(connection, queue, 2, headers=in_seconds(30))  # a worker waits for the rest
        assert [m.payload for m in received(connection, queue, 4)] == [2]


def test_a_recalled_task_never_comes(connection: Connection) -> None:
    queue = Queue("recalled")
    Queue("temporary", exclusive=True)(connection.default_channel).declare()
    for task in ("one", "two"):
        publish(connection, queue, task, headers=in_seconds(2), correlation_id=task)
    clients = connection.transport.clients
    assert clients.run(clients.recall("one"))
    assert not clients.run(clients.recall("unknown"))
    assert [m.payload for m in received(connection, queue, 4)] == ["two"]


@pytest.mark.parametrize("eta", [0, 1.5])
def test_higher_priorities_come_first_with_an_eta_and_without(
    connection: Connection, eta: float
) -> None:
    queue = Queue(f"priorities{int(eta)}", max_priority=9)
    for priority in (0, 3, 9, None, 6):
        headers = in_seconds(eta) if eta else {}
        publish(connection, queue, priority, priority=priority, headers=headers)
    bound, until = queue(connection.default_channel), SYSTEM_CLOCK.monotonic_ms() + 10_000
    while SYSTEM_CLOCK.monotonic_ms() < until:
        if bound.queue_declare(passive=True).message_count == 5:
            break
        time.sleep(0.1)
    connection.default_channel.basic_qos(0, 5, False)
    assert [m.payload for m in received(connection, queue, 5, limit=5)][:3] == [9, 6, 3]


@pytest.fixture
def two(url: str) -> Iterator[tuple[Connection, Connection]]:
    with Connection(url) as one, Connection(url) as other:
        yield one, other


@pytest.mark.parametrize(
    ("kind", "binding", "key", "reached"),
    [
        ("direct", "a.b", "a.b", True),
        ("direct", "a.b", "a.c", False),
        ("topic", "a.*", "a.b", True),
        ("topic", "a.*", "a.b.c", False),
        ("fanout", "", "whatever", True),
    ],
)
@pytest.mark.parametrize("options", [{}, {"exclusive": True}], ids=["kept", "temporary"])
def test_an_exchange_reaches_queues_that_its_producer_never_heard_of(
    two: tuple[Connection, Connection],
    kind: str,
    binding: str,
    key: str,
    reached: bool,
    options: dict[str, Any],
) -> None:
    producing, consuming = two
    exchange = Exchange("news", type=kind)
    producer = Producer(producing.default_channel, exchange)
    queue = Queue("mine", exchange, routing_key=binding, **options)
    producer.publish("dropped: nobody has bound a queue yet", routing_key=key)
    queue(consuming.default_channel).declare()
    producer.publish("sent", routing_key=key)
    assert [m.payload for m in received(consuming, queue)] == ["sent"] * reached


def test_a_queue_that_is_read_already_reads_a_further_exchange_from_its_binding_on(
    two: tuple[Connection, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    producing, consuming = two
    news, weather = Exchange("news", type="topic"), Exchange("weather", type="fanout")
    queue = Queue("mine", news, routing_key="a.*")
    messages: list[Any] = []
    with Consumer(consuming, [queue], on_message=messages.append):
        channel = consuming.channel()  # another channel of the same connection
        weather(channel).declare()
        queue(channel).bind_to(weather)
        queue(channel).bind_to(news, routing_key="b.*")
        for exchange, key in ((news, "a.1"), (news, "b.1"), (news, "c.1"), (weather, "all")):
            Producer(producing.default_channel, exchange).publish(key, routing_key=key)
        for _ in range(3):
            with suppress(TimeoutError):  # several may come at once
                consuming.drain_events(timeout=0.5)
    assert sorted(message.payload for message in messages) == ["a.1", "all", "b.1"]
    assert "queue mine has no binding here for key c.1 of exchange news" in caplog.text


def test_a_foreign_message_is_a_dead_letter_and_stops_nobody(
    url: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue, namespace = Queue("shared"), url.rpartition("/")[2]
    with Connection(url) as connection, PlainProducer(address) as stranger:
        queue(connection.default_channel).declare()
        encoded = (
            b'{"content-type": null, "content-encoding": null, "headers": {}, "properties": '
            b'{"body_encoding": "x", "delivery_info": {"exchange": "", "routing_key": "shared"}}}\n'
        )
        for body in (b"hello", b"{}\n", b"\xff\n", encoded):
            stranger.send(f"{namespace}%shared", body)
        publish(connection, queue, "ours")
        assert [m.payload for m in received(connection, queue)] == ["ours"]
    assert caplog.text.count("no message of kombu") == 4


def test_a_message_waits_for_the_package_that_its_body_needs(
    url: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, namespace = Queue("squeezed"), url.rpartition("/")[2]
    config = ProducerConfig(compression=Compression.ZSTD, compress_from=1)
    with Connection(url) as connection, PlainProducer(address, config=config) as stranger:
        queue(connection.default_channel).declare()
        stranger.send(f"{namespace}%squeezed", b"{}" * 10)
        monkeypatch.setitem(sys.modules, "zstandard", None)
        assert received(connection, queue) == []
    monkeypatch.undo()
    with PullConsumer(address, group="audit") as reader:
        assert not reader.queues(f"%DLQ%{namespace}%squeezed")


def test_an_error_that_ends_the_reading_of_a_queue_is_raised_to_its_consumer(
    connection: Connection,
) -> None:
    refused = CallRefused(ResponseCode.NO_PERMISSION, "no right to read")
    with Consumer(connection, [Queue("mine")]):
        connection.transport.fail(refused)
        with pytest.raises(connection.connection_errors, match="no right to read"):
            connection.drain_events(timeout=5)


def test_queues_are_measured_purged_and_deleted(connection: Connection) -> None:
    with closing(connection.SimpleQueue("sized")) as queue:
        for n in range(5):
            queue.put(n)
        time.sleep(0.2)
        queue.consumer.cancel()
        bound = queue.queue
        assert bound.get().payload in range(5)
        assert bound.purge() >= 1
        assert bound.get() is None
        bound.delete()
        with pytest.raises(connection.channel_errors):
            bound.queue_declare(passive=True)


def test_queues_may_have_any_name(connection: Connection) -> None:
    for name in ("ü@h.de/../x y", "%RETRY%celery", "TBW102.", "a__b"):
        queue = Queue(name)
        publish(connection, queue, name)
        assert [m.payload for m in received(connection, queue)] == [name]


def test_temporary_queues_are_shared_by_the_connections_of_a_process(
    two: tuple[Connection, Connection],
) -> None:
    one, other = two
    queue = Queue("replies", auto_delete=True)
    queue(one.default_channel).declare()
    Producer(other.default_channel).publish("result", routing_key="replies")
    message = queue(other.default_channel).get()
    assert message is not None
    assert message.payload == "result"
