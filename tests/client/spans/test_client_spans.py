"""Spans of one client: whatever a message holds, its spans are made and it is not disturbed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from opentelemetry.context import Context, get_current
from opentelemetry.propagate import get_global_textmap, set_global_textmap
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from roquet.client.spans.client_spans import LINKS_MAX, ClientSpans, SpannedClient
from roquet.client.spans.message_attributes import MessageRequest
from roquet.model.errors import CallError
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus

REQUEST = MessageRequest("t", "a")
CONTEXT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


class Received(msgspec.Struct):
    """A received message."""

    properties: Mapping[str, str] = {}
    topic: str = "t"
    message_id: str = "ID"
    broker_name: str = "a"
    queue_id: int = 3
    stored_body: tuple[bytes, int] = (b"body", 0)


def spans_of(address: str | None = "10.0.0.1:10911") -> tuple[ClientSpans, InMemorySpanExporter]:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    client = SpannedClient("id", None, "g", "clustering", lambda _: address, lambda: 5_000)
    return ClientSpans(client, provider), kept


class Failing(SpanProcessor):
    """A processor that raises when a span starts, or when it ends."""

    def __init__(self, when: str, error: Exception) -> None:
        self.when, self.error = when, error

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self.when == "start":
            raise self.error

    def on_end(self, span: ReadableSpan) -> None:
        if self.when == "end":
            raise self.error


RECEIPT = SendReceipt(
    status=SendStatus.SEND_OK, message_id="ID", offset_message_id="OFF",
    queue=MessageQueue("t", "a", 7), queue_offset=0,
)  # fmt: skip


def only(kept: InMemorySpanExporter) -> tuple[ReadableSpan, dict[str, Any]]:
    (span,) = kept.get_finished_spans()
    return span, dict(span.attributes or {})


@pytest.mark.parametrize("address", [None, "nonsense"])
def test_a_broker_without_a_known_address_has_no_server(address: str | None) -> None:
    spans, kept = spans_of(address)
    with spans.settle("nack", Received()):
        pass
    _, attributes = only(kept)
    assert "server.address" not in attributes
    assert attributes["messaging.destination.partition.id"] == "a/3"


def test_a_context_that_is_no_context_is_ignored() -> None:
    spans, kept = spans_of()
    with spans.process(Received({"traceparent": "00-broken"})):
        pass
    span, _ = only(kept)
    assert span.parent is None
    assert not span.links


def test_a_reply_without_messages_has_no_span_and_one_with_many_has_so_many_links() -> None:
    spans, kept = spans_of()
    spans.received(REQUEST, (), 15_000)
    assert not kept.get_finished_spans()
    spans.received(REQUEST, [Received(CONTEXT)] * (LINKS_MAX + 1), 2_000)
    span, attributes = only(kept)
    assert len(span.links) == LINKS_MAX
    assert attributes["messaging.batch.message_count"] == LINKS_MAX + 1
    assert (span.start_time, span.end_time) == (3_000_000_000, 5_000_000_000)


def test_a_batch_has_a_span_that_is_linked_to_its_messages_and_begins_a_trace() -> None:
    spans, kept = spans_of()
    with spans.settle("outside", Received()), spans.process_batch([Received(CONTEXT), Received()]):
        pass
    span, _outer = kept.get_finished_spans()
    attributes = dict(span.attributes or {})
    assert (span.name, span.kind, span.parent) == ("process t", SpanKind.CONSUMER, None)
    assert [f"{link.context.span_id:016x}" for link in span.links] == ["b7ad6b7169203331"]
    assert attributes["messaging.batch.message_count"] == 2
    assert attributes["messaging.destination.name"] == "t"
    assert attributes["messaging.operation.type"] == "process"


def test_a_batch_of_several_topics_names_none() -> None:
    spans, kept = spans_of()
    with spans.process_batch([Received(topic="t"), Received(topic="u")]):
        pass
    span, attributes = only(kept)
    assert span.name == "process"
    assert "messaging.destination.name" not in attributes


def test_a_failed_request_for_messages_has_its_error() -> None:
    spans, kept = spans_of()
    spans.receive_failed(REQUEST, CallError("gone", definite=True), 10)
    span, attributes = only(kept)
    assert span.status.status_code is StatusCode.ERROR
    assert attributes["error.type"] == "CallError"


def test_a_send_gives_its_context_and_is_told_where_the_message_is() -> None:
    spans, kept = spans_of()
    with spans.send("t", "UNIQ_KEY\x01ID\x02", 4) as sending:
        sending.stored(RECEIPT)
    span, attributes = only(kept)
    context = span.get_span_context()
    assert context is not None
    assert f"{context.span_id:016x}" in sending.context["traceparent"]
    assert attributes["messaging.destination.partition.id"] == "a/7"
    assert attributes["messaging.message.id"] == "ID"


def test_a_message_that_has_a_context_gets_no_other() -> None:
    spans, _ = spans_of()
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in CONTEXT.items())
    with spans.send("t", encoded, 4) as sending:
        assert not sending.context
    assert not spans.create("t", encoded, 4)


@pytest.mark.parametrize("when", ["start", "end"])
def test_an_sdk_that_raises_disturbs_neither_sends_nor_handlers(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    class SdkError(Exception):
        """An error of a kind that nobody has seen before."""

    provider = TracerProvider()
    provider.add_span_processor(Failing(when, SdkError()))
    client = SpannedClient("id", None, "g", "clustering", lambda _: None, lambda: 5_000)
    spans, before = ClientSpans(client, provider), get_current()
    with spans.send("t", "UNIQ_KEY\x01ID\x02", 4) as sending:
        sending.stored(RECEIPT)
    spans.create("t", "", 4)
    spans.received(REQUEST, [Received()], 10)
    spans.receive_failed(REQUEST, CallError("gone", definite=True), 10)
    with pytest.raises(KeyError), spans.process(Received()):
        raise KeyError("the handler's own")
    assert get_current() == before
    assert caplog.text.count("OpenTelemetry fails") == 1


@pytest.fixture
def set_propagator() -> Iterator[Callable[[TextMapPropagator], None]]:
    before = get_global_textmap()
    yield set_global_textmap
    set_global_textmap(before)


def test_a_propagator_that_raises_leaves_messages_without_a_context(
    set_propagator: Callable[[TextMapPropagator], None],
) -> None:
    class Broken(TraceContextTextMapPropagator):
        def extract(self, *_: object, **__: object) -> Context:
            raise RuntimeError("extract")

        def inject(self, *_: object, **__: object) -> None:
            raise RuntimeError("inject")

    set_propagator(Broken())
    spans, kept = spans_of()
    with spans.process(Received(CONTEXT)):
        pass
    with spans.send("t", "", 4) as sending:
        assert not sending.context
    assert [span.parent for span in kept.get_finished_spans()] == [None, None]


def test_texts_that_no_exporter_can_encode_are_replaced() -> None:
    spans, kept = spans_of()
    properties = {"TAGS": "a\ud800", "KEYS": "k\udfff l", "UNIQ_KEY": "\ud800"}
    with pytest.raises(ValueError), spans.process(Received(properties, message_id="\ud800")):
        raise ValueError("tag a\ud800")
    span, attributes = only(kept)
    assert attributes["messaging.rocketmq.message.tag"] == "a?"
    assert attributes["messaging.rocketmq.message.keys"] == ("k?", "l")
    assert attributes["messaging.message.id"] == "?"
    assert span.status.description == "tag a?"
    span.to_json().encode()
    for text in (dict(event.attributes or {}) for event in span.events):
        assert str(text["exception.message"]).encode() == b"tag a?"
        str(text["exception.stacktrace"]).encode()
