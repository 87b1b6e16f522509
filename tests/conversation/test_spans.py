"""OpenTelemetry spans: one trace from a producer's send to the handlers of its messages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.conversation.conftest import config_of, consumer_of, producer_of, virtual_cluster

from roquet.client import (
    CallError,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    MessageQueue,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    TransactionProducer,
    TransactionState,
    blocking,
)
from roquet.client.consumer import Consumer
from roquet.testing.clock import this_loop
from roquet.testing.cluster import BlockingCluster, Cluster

Config = TypeVar("Config", ConsumerConfig, ProducerConfig)

JAVA_TRACE = "0af7651916cd43dd8448eb211c80319c"
JAVA_SPAN = "b7ad6b7169203331"


class Recorder:
    """A TracerProvider that keeps the spans that have ended."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    def named(self, *names: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name in names]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def config(self, kind: type[Config], **settings: Any) -> Config:
        return config_of(kind, tracing=self.provider, **settings)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_send_and_its_handler_are_one_trace(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        inside: list[int] = []
        async with (
            producer_of(running, tracing=recorder.provider) as producer,
            consumer_of(running, tracing=recorder.provider) as consumer,
        ):
            receipt = await producer.send("t", b"body", tag="T", keys=("k1", "k2"))

            async def handler(message: ReceivedMessage) -> None:
                await asyncio.sleep(0.01)
                inside.append(trace.get_current_span().get_span_context().span_id)
                consumer.stop()

            await consumer.run(handler)
        sent, received, handled = map(recorder.one, ("send t", "receive t", "process t"))
        assert (sent.kind, received.kind, handled.kind) == (
            SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER,
        )  # fmt: skip
        assert parent(handled) == ids(sent)
        assert links(handled) == links(received) == [ids(sent)]
        assert parent(received) is None
        assert inside == [ids(handled)[1]]
        host, port = running.broker_addrs[0].rsplit(":", 1)
        queue = f"{receipt.queue.broker_name}/{receipt.queue.queue_id}"
        common = {
            "messaging.system": "rocketmq",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": queue,
            "messaging.message.id": receipt.message_id,
            "messaging.message.body.size": 4,
            "messaging.rocketmq.message.tag": "T",
            "messaging.rocketmq.message.keys": ("k1", "k2"),
            "server.address": host,
            "server.port": int(port),
        }
        assert attributes(sent) == {
            **common,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": producer.client_id,
            "messaging.rocketmq.message.type": "normal",
        }
        assert attributes(handled) == {
            **common,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.client.id": consumer.client_id,
            "messaging.consumer.group.name": "g",
            "messaging.rocketmq.consumption_model": "clustering",
        }
        assert attributes(received)["messaging.batch.message_count"] == 1


@pytest.mark.parametrize("kind", ["push", "pop", "pull"])
async def test_a_batch_has_one_span_that_is_linked_to_its_sends(
    kind: str, recorder: Recorder
) -> None:
    async with virtual_cluster() as running:
        inside: list[int] = []
        async with (
            producer_of(running, tracing=recorder.provider) as producer,
            batch_consumer(kind, running, recorder.config(ConsumerConfig)) as consumer,
        ):
            for body in (b"1", b"2"):
                await producer.send("t", body)

            async def handler(messages: Sequence[ReceivedMessage]) -> None:
                inside.append(trace.get_current_span().get_span_context().span_id)
                if len(inside) == 1:
                    raise ValueError("not yet")
                if not any(message.tries for message in messages):
                    return
                consumer.stop()

            await consumer.run_batch(handler, size=2, wait_ms=5_000)
        first, *_, last = recorder.named("process t")
        sent = [ids(span) for span in recorder.named("send t")]
        assert sorted(links(first)) == sorted(sent)
        assert (first.kind, first.parent) == (SpanKind.CONSUMER, None)
        assert attributes(first)["messaging.batch.message_count"] == 2
        assert attributes(first)["messaging.consumer.group.name"] == "g"
        assert attributes(first)["error.type"] == "ValueError"
        assert first.status.status_code is StatusCode.ERROR
        assert last.status.status_code is StatusCode.UNSET
        assert inside[0] == ids(first)[1]


@asynccontextmanager
async def batch_consumer(
    kind: str, running: Cluster, config: ConsumerConfig
) -> AsyncIterator[Consumer[Any]]:
    """A consumer of topic `t`, of a kind."""
    if kind == "pull":
        async with PullConsumer(running.namesrv_addr, group="g", config=config) as consumer:
            await consumer.subscribe("t")
            yield consumer
        return
    make: Any = PushConsumer if kind == "push" else PopConsumer
    async with make(running.namesrv_addr, group="g", topic="t", config=config) as other:
        yield other


async def test_a_context_from_java_is_continued(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        plain = ProducerConfig(clock=this_loop().clock)
        async with (
            Producer(running.namesrv_addr, config=plain) as producer,
            consumer_of(running, tracing=recorder.provider) as consumer,
        ):
            properties = {"traceparent": f"00-{JAVA_TRACE}-{JAVA_SPAN}-01", "tracestate": "a=b"}
            await producer.send("t", b"from Java", properties=properties)

            async def handler(message: ReceivedMessage) -> None:
                consumer.stop()

            await consumer.run(handler)
        handled = recorder.one("process t")
        assert parent(handled) == (int(JAVA_TRACE, 16), int(JAVA_SPAN, 16))
        assert handled.parent is not None
        assert handled.parent.trace_state.get("a") == "b"


async def test_a_message_that_is_passed_on_keeps_its_context(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        config = recorder.config(ProducerConfig)
        properties = {"traceparent": f"00-{JAVA_TRACE}-{JAVA_SPAN}-01"}
        async with Producer(running.namesrv_addr, config=config) as producer:
            await producer.send("t", b"passed on", properties=properties)
        sent = recorder.one("send t")
        assert sent.kind is SpanKind.CLIENT
        assert links(sent) == [(int(JAVA_TRACE, 16), int(JAVA_SPAN, 16))]


async def test_a_failed_handler_and_what_settles_its_message(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        async with (
            producer_of(running, tracing=recorder.provider) as producer,
            consumer_of(running, tracing=recorder.provider) as consumer,
        ):
            await producer.send("t", b"body")

            async def handler(message: ReceivedMessage) -> None:
                if not message.tries:
                    raise ValueError("not now")
                consumer.stop()

            await consumer.run(handler)
        sent = recorder.one("send t")
        first, second = recorder.named("process t")
        assert first.status.status_code is StatusCode.ERROR
        assert first.status.description == "not now"
        assert attributes(first)["error.type"] == "ValueError"
        assert first.events[0].name == "exception"
        assert second.status.status_code is StatusCode.UNSET
        assert parent(first) == parent(second) == ids(sent)
        settled = recorder.one("nack t")
        assert (settled.kind, parent(settled)) == (SpanKind.CLIENT, ids(sent))
        assert attributes(settled)["messaging.operation.type"] == "settle"


async def test_a_refused_send_is_an_error(recorder: Recorder) -> None:
    async with (
        virtual_cluster(auto_create_topic=False) as running,
        producer_of(running, tracing=recorder.provider, send_timeout_ms=300) as producer,
    ):
        with pytest.raises(CallError):
            await producer.send("t", b"body")
    sent = recorder.one("send t")
    assert sent.status.status_code is StatusCode.ERROR
    assert attributes(sent)["error.type"]


async def test_a_batch_without_room_for_contexts_is_sent_without_them(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        async with producer_of(running, tracing=recorder.provider) as producer:
            # Properties take most of the rest.
            body = bytes(ProducerConfig().body_size_max // 2 - 100)
            receipt = await producer.send_batch([Message("t", body), Message("t", body)])
            assert receipt.ok
        assert len(recorder.named("create t")) == 2
        assert recorder.one("send t").status.status_code is StatusCode.UNSET


async def test_messages_of_batches_have_spans_that_sends_are_linked_to(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        async with producer_of(running, tracing=recorder.provider) as producer:
            with recorder.provider.get_tracer("test").start_as_current_span("request") as request:
                await producer.send_batch([Message("t", b"1"), Message("t", b"2")])
            await producer.send_many([Message("u", b"%d" % n, order_key="k") for n in range(3)])
        created = recorder.named("create t")
        sent = recorder.one("send t")
        assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
        assert links(sent) == [ids(span) for span in created]
        assert sent.kind is SpanKind.CLIENT
        assert attributes(sent)["messaging.batch.message_count"] == 2
        inside = request.get_span_context()
        assert {parent(span) for span in (sent, *created)} == {(inside.trace_id, inside.span_id)}
        assert (
            attributes(recorder.named("create u")[0])["messaging.rocketmq.message.type"] == "fifo"
        )
        assert links(recorder.one("send u")) == [ids(span) for span in recorder.named("create u")]
        looking = ConsumerConfig(clock=this_loop().clock)
        async with PullConsumer(running.namesrv_addr, group="looker", config=looking) as consumer:
            found = {
                message.properties["traceparent"]
                for queue in await consumer.queues("t")
                for message in (await consumer.pull(queue, 0)).messages
            }
        assert {text.split("-")[2] for text in found} == {f"{ids(s)[1]:016x}" for s in created}


async def test_lingering_delayed_and_oneway_sends_have_a_span_each(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        async with producer_of(running, tracing=recorder.provider, linger_ms=5) as producer:
            await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(3)))
            await producer.send("t", b"later", delay_level=3)
            await producer.send_oneway("t", b"oneway")
        sent = recorder.named("send t")
        assert [span.kind for span in sent] == [SpanKind.PRODUCER] * 5
        assert attributes(sent[3])["messaging.rocketmq.message.type"] == "delay"
        assert attributes(sent[3])["messaging.rocketmq.message.delay_time_level"] == 3
        assert "messaging.destination.partition.id" not in attributes(sent[4])


async def test_a_transaction_has_its_half_message_its_end_and_its_check(recorder: Recorder) -> None:
    def check(message: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with virtual_cluster(
        transaction_timeout=1_000, transaction_check_interval=1_000
    ) as running:
        config = recorder.config(ProducerConfig)
        async with TransactionProducer(
            running.namesrv_addr, group="pg", check=check, config=config
        ) as producer:
            async with producer.transaction("t", b"one"):
                pass
            with pytest.raises(ValueError, match="no"):
                async with producer.transaction("t", b"two"):
                    raise ValueError("no")
            async with producer.transaction("t", b"three") as tx:
                tx.unknown()
            await asyncio.sleep(20)
        first, second, third = recorder.named("create t")
        assert [links(span) for span in recorder.named("send t")] == [
            [ids(first)], [ids(second)], [ids(third)],
        ]  # fmt: skip
        assert links(recorder.one("commit t")) == [ids(first)]
        assert links(recorder.one("rollback t")) == [ids(second)]
        assert parent(recorder.one("check t")) == ids(third)
        assert attributes(third)["messaging.rocketmq.message.type"] == "transaction"


async def test_popped_messages_are_received_and_acknowledged(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        reading = recorder.config(ConsumerConfig)
        async with (
            producer_of(running, tracing=recorder.provider) as producer,
            PopConsumer(running.namesrv_addr, group="g", topic="t", config=reading) as consumer,
        ):
            for body in (b"fails", b"works"):
                await producer.send("t", body)

            async def handler(message: ReceivedMessage) -> None:
                if message.body == b"fails" and not message.tries:
                    await message.nack(1_000)
                    return
                if message.tries:
                    consumer.stop()

            await consumer.run(handler)
        failed, _ = recorder.named("send t")
        assert {link for span in recorder.named("receive t") for link in links(span)} == {
            ids(span) for span in recorder.named("send t")
        }
        assert len(recorder.named("process t")) == 3
        assert parent(recorder.one("nack t")) == ids(failed)
        acked = recorder.named("ack t")
        assert {parent(span) for span in acked} == {None}
        assert sum(attributes(span)["messaging.batch.message_count"] for span in acked) == 2


async def test_a_pull_consumer_has_spans_of_pulls_and_commits(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        async with (
            producer_of(running, tracing=recorder.provider) as producer,
            PullConsumer(
                running.namesrv_addr, group="g", config=recorder.config(ConsumerConfig)
            ) as consumer,
        ):
            receipt = await producer.send("t", b"body")
            with recorder.provider.get_tracer("test").start_as_current_span("request") as request:
                result = await consumer.pull(receipt.queue, 0)
            await consumer.pull(receipt.queue, result.next_offset)
            with pytest.raises(CallError):
                await consumer.pull(MessageQueue("t", "no-broker", 0), 0)
            await consumer.commit(receipt.queue, result.next_offset)
        received, failed = recorder.named("receive t")
        inside = request.get_span_context()
        assert links(received) == [ids(recorder.one("send t"))]
        assert parent(received) == (inside.trace_id, inside.span_id)
        assert failed.status.status_code is StatusCode.ERROR
        assert attributes(recorder.one("commit t"))["messaging.operation.type"] == "settle"


async def test_a_namespace_is_an_attribute_and_no_part_of_names(recorder: Recorder) -> None:
    async with virtual_cluster() as running:
        config = recorder.config(ProducerConfig, namespace="shop")
        looking = recorder.config(ConsumerConfig, namespace="shop")
        async with (
            Producer(running.namesrv_addr, config=config) as producer,
            PullConsumer(running.namesrv_addr, group="g", config=looking) as consumer,
        ):
            receipt = await producer.send("t", b"body")
            await consumer.pull(receipt.queue, 0)
        sent, received = recorder.one("send t"), recorder.one("receive t")
        for span in (sent, received):
            assert attributes(span)["messaging.destination.name"] == "t"
            assert attributes(span)["messaging.rocketmq.namespace"] == "shop"
        assert attributes(received)["messaging.consumer.group.name"] == "g"


def test_blocking_clients_continue_the_callers_trace(recorder: Recorder) -> None:
    handled: list[int] = []
    tracer = recorder.provider.get_tracer("test")
    with BlockingCluster() as running:
        sending = ProducerConfig(tracing=recorder.provider)
        reading = ConsumerConfig(tracing=recorder.provider, consume_from=ConsumeFrom.FIRST)
        with (
            blocking.Producer(running.namesrv_addr, config=sending) as producer,
            blocking.PushConsumer(
                running.namesrv_addr, group="g", topic="t", config=reading
            ) as consumer,
        ):
            with tracer.start_as_current_span("request") as request:
                producer.send("t", b"body")

            def handler(message: blocking.ReceivedMessage) -> None:
                handled.append(trace.get_current_span().get_span_context().trace_id)
                consumer.stop()

            consumer.run(handler)
    assert handled == [request.get_span_context().trace_id]
    assert parent(recorder.one("process t")) == ids(recorder.one("send t"))


def test_a_blocking_batch_has_one_span(recorder: Recorder) -> None:
    with BlockingCluster() as running:
        sending = ProducerConfig(tracing=recorder.provider)
        reading = ConsumerConfig(tracing=recorder.provider, consume_from=ConsumeFrom.FIRST)
        with (
            blocking.Producer(running.namesrv_addr, config=sending) as producer,
            blocking.PushConsumer(
                running.namesrv_addr, group="g", topic="t", config=reading
            ) as consumer,
        ):
            producer.send("t", b"body")
            consumer.run_batch(lambda _messages: consumer.stop(), wait_ms=0)
    handled = recorder.one("process t")
    assert links(handled) == [ids(recorder.one("send t"))]
