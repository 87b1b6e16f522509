"""Request meter: measures requests from their dispatch to their replies."""

from collections.abc import Container
from typing import Final

from roquet.metrics.request_counts import (
    OTHER_CODE,
    RequestCounts,
    RequestKind,
    RequestLatencies,
    RequestResult,
)
from roquet.net.clock import UNTIMED, Clock
from roquet.wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode

LONG_POLLING_CODES: Final = frozenset(
    int(code)
    for code in (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
    )
)
"""Codes of requests that may wait for messages."""

_KNOWN: Final = frozenset(map(int, RequestCode))

SUCCESS: Final = RequestResult.SUCCESS
ONEWAY: Final = RequestResult.ONEWAY
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)


TIMED_EVERY: Final = 16
"""Of so many frequent requests one is timed: the clock costs more than all other counting."""

KINDS_MAX: Final = 1_000
"""Kinds of requests that are found without making their labels."""


class RequestMeter:
    """Counts the requests of one server, and times all but the frequent ones."""

    def __init__(self, clock: Clock, frequent: Container[int] = frozenset()) -> None:
        """Of requests with a `frequent` code one of TIMED_EVERY is timed."""
        self.counts = RequestCounts()
        self.now_ms = clock.monotonic_ms
        """Monotonic time in ms."""
        self._frequent = frequent
        self._known: dict[tuple[int, int, int, bool], RequestLatencies] = {}

    def successes(self, code: int) -> RequestLatencies | None:
        """Latencies of a frequent code's requests that succeed at once; None for other codes.

        While `left` is not 0 such a request is not timed, and counts itself by one less of it.
        """
        return self._of(code, 0, 0) if code in self._frequent else None

    def begin(self, code: int) -> int:
        """Monotonic ms at which a request is served, or UNTIMED."""
        if (latencies := self.successes(code)) is not None:
            if latencies.left > 0:
                return UNTIMED
            latencies.allow_untimed(TIMED_EVERY - 1)
        return self.now_ms()

    def replied(self, code: int, flag: int, response_code: int, begun_ms: int) -> None:
        """Count a request that was answered at once."""
        latencies = self._of(code, flag, response_code)
        if begun_ms != UNTIMED:
            latencies.observe(self.now_ms() - begun_ms)
            return
        latencies.left -= 1
        if latencies is not self.successes(code):
            self._time_sooner(code)

    def replied_later(self, code: int, flag: int, response_code: int, begun_ms: int) -> None:
        """Count a request whose reply had to wait, for messages or for the disk."""
        is_long_polling = code in LONG_POLLING_CODES
        latencies = self._of(code, flag, response_code, is_long_polling=is_long_polling)
        latencies.observe(self.now_ms() - begun_ms)

    def failed(self, code: int, begun_ms: int) -> None:
        """Count a request that a fault of the server refused."""
        self._ended(RequestKind(code, SYSTEM_ERROR, False, RequestResult.FAILED), begun_ms)

    def cancelled(self, code: int, begun_ms: int) -> None:
        """Count a request whose peer went before the reply."""
        is_long_polling = code in LONG_POLLING_CODES
        self._ended(RequestKind(code, 0, is_long_polling, RequestResult.CANCELLED), begun_ms)

    def _ended(self, kind: RequestKind, begun_ms: int) -> None:
        if begun_ms == UNTIMED:
            self._time_sooner(kind.request_code)
        elapsed_ms = 0 if begun_ms == UNTIMED else self.now_ms() - begun_ms
        self.counts.of(kind).observe(elapsed_ms)

    def _time_sooner(self, code: int) -> None:
        """Allow one untimed request of a frequent code less, since another kind has had it."""
        if (successes := self.successes(code)) is not None:
            successes.allow_untimed(successes.left - 1)

    def _of(
        self, code: int, flag: int, response_code: int, *, is_long_polling: bool = False
    ) -> RequestLatencies:
        """Latencies of requests that got a reply."""
        known = code, response_code, flag & FLAG_ONEWAY, is_long_polling
        if (found := self._known.get(known)) is not None:
            return found
        result = ONEWAY if flag & FLAG_ONEWAY else SUCCESS
        is_known = code in _KNOWN
        shown = code if is_known else OTHER_CODE  # clients may send any
        latencies = self.counts.of(RequestKind(shown, response_code, is_long_polling, result))
        if is_known and len(self._known) < KINDS_MAX:
            self._known[known] = latencies
        return latencies
