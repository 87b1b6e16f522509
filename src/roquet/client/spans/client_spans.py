"""Client spans: makes the spans of one client, and carries their contexts in messages."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from traceback import format_exception
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.context import Context
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    use_span,
)

import roquet
from roquet.client.spans.message_attributes import (
    HandledMessage,
    MessageRequest,
    SpannedMessage,
    encodable,
    property_attributes,
    sent_attributes,
)
from roquet.log_records import logger
from roquet.model.errors import UsageError
from roquet.model.namespaces import unwrap
from roquet.model.results import SendReceipt
from roquet.net.address import split_address
from roquet.wire.records.property_text import decode_properties

log = logger(__name__)

LINKS_MAX: Final = 128
"""Links of one span, the default limit of OpenTelemetry's SDK."""

QueueAttributes: TypeAlias = Callable[[str, int], Mapping[str, Any]]
"""Attributes of a queue by the name of its broker and its id."""


class SpannedClient(NamedTuple):
    """The client whose spans are made."""

    client_id: str
    namespace: str | None
    consumer_group: str | None
    """None for a producer."""
    consumption_model: str
    """`clustering` or `broadcasting`; empty for a producer."""
    address_of: Callable[[str], str | None]
    """Address of a broker by its name; None while it is not known."""
    now_ms: Callable[[], int]
    """Wall-clock time, for spans that are made at their end."""


class SendSpan:
    """A span of a send that is under way."""

    def __init__(
        self, span: Span, context: Mapping[str, str], queue_attributes: QueueAttributes
    ) -> None:
        self.context = context
        """The span's context as properties to add to the message; empty if it has a context."""
        self._span = span
        self._queue_attributes = queue_attributes

    def stored(self, receipt: SendReceipt) -> None:
        """Note where the message, or the first one of a batch, is stored."""
        queue = receipt.queue
        with _harmless():
            self._span.set_attributes(self._queue_attributes(queue.broker_name, queue.queue_id))


class ClientSpans:
    """Makes the spans of one client."""

    def __init__(self, client: SpannedClient, provider: TracerProvider | None = None) -> None:
        """`provider` None takes the one of the process."""
        self._client = client
        self._tracer = get_tracer(__name__, roquet.__version__, provider)
        self._common: dict[str, Any] = {
            "messaging.system": "rocketmq",
            "messaging.client.id": client.client_id,
        }
        if client.namespace:
            self._common["messaging.rocketmq.namespace"] = client.namespace
        if client.consumer_group is not None:
            self._common["messaging.consumer.group.name"] = client.consumer_group
            self._common["messaging.rocketmq.consumption_model"] = client.consumption_model

    # Producers.

    @contextmanager
    def send(self, topic: str, encoded: str, body_size: int) -> Iterator[SendSpan]:
        """A span around the send of one message with these encoded properties.

        A message that has a context already, as one that is passed on, keeps it: the span is
        linked to it.
        """
        properties = decode_properties(encoded)
        links = _links([properties])
        kind = SpanKind.CLIENT if links else SpanKind.PRODUCER
        attributes = sent_attributes(properties, body_size)
        with self._active("send", "send", topic, kind, attributes, links=links) as span:
            yield SendSpan(span, {} if links else _carried(), self._of_queue)

    def create(self, topic: str, encoded: str, body_size: int) -> Mapping[str, str]:
        """Properties that carry the context of a message which a later span sends."""
        properties = decode_properties(encoded)
        if _links([properties]):
            return {}
        attributes = sent_attributes(properties, body_size)
        with self._active("create", "create", topic, SpanKind.PRODUCER, attributes):
            return _carried()

    @contextmanager
    def send_created(self, topic: str, encoded: Sequence[str]) -> Iterator[SendSpan]:
        """A span around the send of messages whose contexts are in their encoded properties."""
        attributes: dict[str, Any] = {}
        if len(encoded) > 1:
            attributes["messaging.batch.message_count"] = len(encoded)
        links = _links(map(decode_properties, encoded[:LINKS_MAX]))
        with self._active("send", "send", topic, SpanKind.CLIENT, attributes, links=links) as span:
            yield SendSpan(span, {}, self._of_queue)

    def end_transaction(
        self, name: str, topic: str, encoded: str, receipt: SendReceipt
    ) -> AbstractContextManager[Span]:
        """A span around the end of a transaction: `name` is `commit` or `rollback`."""
        attributes = {
            **self._of_queue(receipt.queue.broker_name, receipt.queue.queue_id),
            "messaging.message.id": receipt.message_id,
            "messaging.rocketmq.message.type": "transaction",
        }
        links = _links([decode_properties(encoded)])
        return self._active(name, "settle", topic, SpanKind.CLIENT, attributes, links=links)

    def check(self, message: SpannedMessage) -> AbstractContextManager[Span]:
        """A span around the check of a transaction, as a child of its message's context."""
        extra = {"messaging.rocketmq.message.type": "transaction"}
        return self._of_message("check", "process", SpanKind.CONSUMER, message, extra)

    # Consumers.

    def received(
        self, request: MessageRequest, messages: Sequence[SpannedMessage], took_ms: int
    ) -> None:
        """Make the span of a reply with messages, which ends now and is linked to them."""
        if messages:
            attributes = {"messaging.batch.message_count": len(messages)}
            links = _links(message.properties for message in messages[:LINKS_MAX])
            with _harmless():
                self._receive(request, attributes, links, took_ms).end(self._now_ns())

    def receive_failed(self, request: MessageRequest, error: Exception, took_ms: int) -> None:
        """Make the span of a request for messages that failed, which ends now."""
        with _harmless():
            span = self._receive(request, {}, (), took_ms)
            _fail(span, error)
            span.end(self._now_ns())

    def _receive(
        self, request: MessageRequest, extra: Mapping[str, Any], links: Sequence[Link], took_ms: int
    ) -> Span:
        attributes = {**self._of_server(request.broker), **extra}
        return self._tracer.start_span(
            f"receive {self._short(request.topic)}",
            # A task of the background is no part of what was under way when it was started.
            None if request.is_users else Context(),
            SpanKind.CLIENT,
            self._attributes("receive", "receive", request.topic, attributes),
            links,
            self._now_ns() - took_ms * 1_000_000,
        )

    def process(self, message: HandledMessage) -> AbstractContextManager[Span]:
        """A span around a handler, as a child of the message's context if it has one."""
        properties = message.properties
        attributes = property_attributes(properties)
        attributes["messaging.message.body.size"] = len(message.stored_body[0])
        return self._of_message("process", "process", SpanKind.CONSUMER, message, attributes)

    def process_batch(self, messages: Sequence[SpannedMessage]) -> AbstractContextManager[Span]:
        """A span around a handler of several messages, linked to their contexts.

        It shows their topic, if they have one in common.
        """
        topics = {message.topic for message in messages}
        return self._active(
            "process",
            "process",
            topics.pop() if len(topics) == 1 else "",
            SpanKind.CONSUMER,
            {"messaging.batch.message_count": len(messages)},
            links=_links(message.properties for message in messages[:LINKS_MAX]),
            parent=Context(),  # as the messages are none of one request
        )

    def settle(self, name: str, message: SpannedMessage) -> AbstractContextManager[Span]:
        """A span around a request that settles one message; `name` is that of the operation."""
        return self._of_message(name, "settle", SpanKind.CLIENT, message, {})

    def settle_many(
        self, name: str, topic: str, broker: str, count: int
    ) -> AbstractContextManager[Span]:
        """A span around a request that settles messages whose contexts are not known any more."""
        attributes = self._of_server(broker) | {"messaging.batch.message_count": count}
        # A task of the background began in the context of some handler, which it does not serve.
        return self._active(name, "settle", topic, SpanKind.CLIENT, attributes, parent=Context())

    def commit(self, topic: str, broker: str) -> AbstractContextManager[Span]:
        """A span around the commit of offsets, of all queues if the topic is empty."""
        attributes = self._of_server(broker)
        return self._active("commit", "settle", topic, SpanKind.CLIENT, attributes)

    # Parts.

    def _of_message(
        self,
        name: str,
        operation: str,
        kind: SpanKind,
        message: SpannedMessage,
        extra: Mapping[str, Any],
    ) -> AbstractContextManager[Span]:
        """A span that is a child of a received message's context, and linked to it."""
        properties = message.properties
        attributes = {
            **self._of_queue(message.broker_name, message.queue_id),
            "messaging.message.id": message.message_id,
            **extra,
        }
        parent = _extracted(properties)
        links = _links([properties])
        return self._active(
            name, operation, message.topic, kind, attributes, links=links, parent=parent
        )

    @contextmanager
    def _active(
        self,
        name: str,
        operation: str,
        topic: str,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        *,
        links: Sequence[Link] = (),
        parent: Context | None = None,
    ) -> Iterator[Span]:
        """A span that is current within the block; `parent` None takes the current context."""
        span: Span | None = None
        with _harmless():
            span = self._tracer.start_span(
                f"{name} {self._short(topic)}".rstrip(),
                parent,
                kind,
                self._attributes(name, operation, topic, attributes),
                links,
            )
        if span is None:
            yield INVALID_SPAN
            return
        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            with _harmless():
                _fail(span, error)
            raise
        finally:
            with _harmless():
                span.end()

    def _attributes(
        self, name: str, operation: str, topic: str, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        shown = {
            **self._common,
            "messaging.operation.name": name,
            "messaging.operation.type": operation,
            **({"messaging.destination.name": self._short(topic)} if topic else {}),
            **extra,
        }
        return {key: encodable(value) for key, value in shown.items()}

    def _short(self, topic: str) -> str:
        """A topic without the client's namespace, which is an attribute of its own."""
        return unwrap(self._client.namespace, topic)

    def _of_queue(self, broker: str, queue_id: int) -> dict[str, Any]:
        """The attributes of a queue; its id alone is not unique among the brokers of a topic."""
        return {
            "messaging.destination.partition.id": f"{broker}/{queue_id}",
            **self._of_server(broker),
        }

    def _of_server(self, broker: str) -> dict[str, Any]:
        try:
            host, port = split_address(self._client.address_of(broker) or "")
        except UsageError:  # not known now
            return {}
        return {"server.address": host, "server.port": port}

    def _now_ns(self) -> int:
        return self._client.now_ms() * 1_000_000


def _carried() -> Mapping[str, str]:
    """The current context as properties, without values that a property cannot hold."""
    carrier: dict[str, str] = {}
    with _harmless():
        inject(carrier)
    return {
        name: value
        for name, value in carrier.items()
        if name and value and not any(s in name + value for s in ("\x01", "\x02"))
    }


def _links(messages: Iterable[Mapping[str, str]]) -> list[Link]:
    """Links to the contexts in the properties of messages."""
    contexts = (
        get_current_span(_extracted(properties)).get_span_context() for properties in messages
    )
    return [Link(context) for context in contexts if context.is_valid]


def _extracted(properties: Mapping[str, str]) -> Context:
    """The context in the properties of a message; an empty one if there is none."""
    with _harmless():
        return extract(properties, Context())
    return Context()


_complained: Final[set[type[Exception]]] = set()


@contextmanager
def _harmless() -> Iterator[None]:
    """Log an error of the SDK, of its processors or of a propagator, once for each kind.

    It must not fail a send that is stored, or a handler whose message would come again for it.
    """
    try:
        yield
    except Exception as error:
        if type(error) not in _complained:
            _complained.add(type(error))
            log.exception("OpenTelemetry fails, and spans are missing")


def _fail(span: Span, error: BaseException) -> None:
    text = encodable(str(error))
    trace = encodable("".join(format_exception(error)))
    span.record_exception(error, {"exception.message": text, "exception.stacktrace": trace})
    span.set_status(Status(StatusCode.ERROR, text))
    span.set_attribute("error.type", type(error).__qualname__)
