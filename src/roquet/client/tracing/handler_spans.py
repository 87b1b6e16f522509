"""Handler spans: a consumer's handler, called with each message in a span of its own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roquet.client.reading.handler_pool import MessageHandler, is_coroutine_function
from roquet.client.reading.message import M

if TYPE_CHECKING:
    from roquet.client.spans.client_spans import ClientSpans


def in_spans(handler: MessageHandler[M], spans: "ClientSpans") -> MessageHandler[M]:
    """Wrap a handler, so that the span of its message is current while it runs."""
    call: Callable[[M], Any] = handler
    if is_coroutine_function(handler):

        async def awaited(message: M) -> object:
            with spans.process(message):
                return await call(message)

        return awaited

    def called(message: M) -> object:
        with spans.process(message):
            return call(message)

    return called
