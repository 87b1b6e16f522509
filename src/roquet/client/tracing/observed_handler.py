"""Observed handler: a consumer's handler, whose calls are traced and run in spans."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from roquet.client.reading.handler_contexts import within
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.message import ReceivedMessage
from roquet.client.reading.message_batch import MessageBatch

if TYPE_CHECKING:
    from roquet.client.spans.client_spans import ClientSpans
    from roquet.client.tracing.tracer import Tracer


def observed(
    handler: MessageHandler[Any], tracer: "Tracer | None", spans: "ClientSpans | None"
) -> MessageHandler[Any]:
    """Wrap a handler of messages, or of batches of them, for a trace and for spans that are made.

    The span of a call is current while the handler runs.
    """
    if tracer is not None:
        handler = within(handler, lambda taken: tracer.handling(_messages_of(taken)))
    if spans is not None:
        handler = within(handler, lambda taken: _process_span(spans, taken))
    return handler


def _messages_of(taken: ReceivedMessage) -> Sequence[ReceivedMessage]:
    return taken.messages if isinstance(taken, MessageBatch) else [taken]


def _process_span(spans: "ClientSpans", taken: ReceivedMessage) -> AbstractContextManager[object]:
    if isinstance(taken, MessageBatch):
        return spans.process_batch(taken.messages)
    return spans.process(taken)
