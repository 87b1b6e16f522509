"""Request counts: how many requests of each code were answered, how, and after how long."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from roquet.metrics.counts import Histogram

LATENCY_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
"""Upper bounds of the buckets of latencies in ms, as in Apache's broker."""

KEYS_MAX: Final = 1_000
"""Combinations of codes and results; clients may send any code, and further ones are OTHER_CODE."""

OTHER_CODE: Final = -1
"""Request and response code under which further combinations are counted."""


class RequestResult(StrEnum):
    """How a request ended, in the words of Apache's metrics."""

    SUCCESS = "success"
    """It got a reply, were it a refusal."""
    ONEWAY = "oneway"
    """It asked for no reply."""
    CANCELLED = "cancelled"
    """The connection ended before the reply."""
    FAILED = "process_request_failed"
    """A fault of the server: the reply says so."""


class RequestKind(NamedTuple):
    """Codes and outcome by which requests are told apart."""

    request_code: int
    response_code: int
    is_long_polling: bool
    """Whether it was a request for messages that waited for some."""
    result: RequestResult


class RequestLatencies:
    """Latencies of the requests of one kind, in whole ms, whose parts even out over many.

    Not every request has to be timed: one that is not counts `left` down, and is taken to have
    lasted as long as the next one that is timed.
    """

    __slots__ = ("_histogram", "_latest_ms", "_untimed_end", "left")

    def __init__(self) -> None:
        self._histogram = Histogram(LATENCY_MS)
        self._latest_ms = 0
        self.left = 0
        """Requests that need not be timed before the next one is; negative beyond them."""
        self._untimed_end = 0
        """The value of `left` up to which all requests are in the histogram."""

    @property
    def untimed(self) -> int:
        """Requests since the latest timed one."""
        return self._untimed_end - self.left

    def allow_untimed(self, count: int) -> None:
        """Set how many of the next requests need not be timed."""
        self._untimed_end += count - self.left
        self.left = count

    def observe(self, elapsed_ms: int) -> None:
        """Count a timed request, and those before it that were not."""
        self._latest_ms = elapsed_ms
        untimed, self._untimed_end = self.untimed, self.left
        self._histogram.observe_equal(elapsed_ms, untimed + 1)

    def histogram(self) -> Histogram:
        """The latencies of all requests so far."""
        if untimed := self.untimed:
            self._untimed_end = self.left
            self._histogram.observe_equal(self._latest_ms, untimed)
        return self._histogram


class RequestCounts:
    """Requests by kind."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[RequestKind, RequestLatencies] = {}

    def of(self, kind: RequestKind) -> RequestLatencies:
        """The latencies of a kind; beyond the limit those of all others."""
        found = self._by_kind.get(kind)
        return self._new(kind) if found is None else found

    def items(self) -> Iterator[tuple[RequestKind, Histogram]]:
        """All kinds that occurred and their latencies, as they are now."""
        for kind, latencies in list(self._by_kind.items()):
            if (histogram := latencies.histogram()).count:
                yield kind, histogram

    def _new(self, kind: RequestKind) -> RequestLatencies:
        if len(self._by_kind) >= KEYS_MAX:
            kind = RequestKind(OTHER_CODE, OTHER_CODE, False, kind.result)
        return self._by_kind.setdefault(kind, RequestLatencies())
