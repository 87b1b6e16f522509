"""Handler times: measures how long the calls of a user's handler take, short ones by samples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

from roquet.client.metrics import HANDLE_SECONDS, ClientMetrics
from roquet.client.reading.handler_contexts import within
from roquet.net.clock import Clock

UNTIMED_MAX: Final = 63
"""Calls that are not timed after one that took less than 1 ms: to time each would cost as much as
the client's own work on a message."""


def timed(
    handler: Callable[[Any], Any], metrics: ClientMetrics, group: str, clock: Clock
) -> Callable[[Any], Any]:
    """Wrap a handler, so that its calls are timed by topic; an `async def` stays awaitable."""
    left, lock = 0, Lock()

    @contextmanager
    def timing(message: Any) -> Iterator[None]:
        nonlocal left
        began_ms = clock.monotonic_ms()
        try:
            yield
        finally:
            took_ms = clock.monotonic_ms() - began_ms
            left = 0 if took_ms else UNTIMED_MAX
            with lock:  # plain handlers run in threads
                times = metrics.times(HANDLE_SECONDS, message.queue.topic, group)
                times.observe(took_ms / 1000)

    call = within(handler, timing)

    def sampled(message: Any) -> object:
        nonlocal left
        if left > 0:
            left -= 1
            return handler(message)
        return call(message)

    return sampled
