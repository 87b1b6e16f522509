"""Request limits: how many requests of a kind wait for their replies, and how late the loop is.

A request that is answered at once costs one look at a flag. Only requests that wait are counted.
rules.admission decides which ones are refused.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from roquet.log_records import logger
from roquet.rules.admission import (
    CLOCK_CHECK_MS,
    AdmissionLimits,
    RequestLoad,
    is_burst,
    is_near_limit,
    loop_lag_ms,
    refusal,
    waited_ms,
)

log = logger(__name__)

NEVER_MS: Final = 1 << 62
"""A monotonic time that is never reached."""


class RequestLimit:
    """Counts the requests of one kind that wait for their replies, and refuses further ones."""

    __slots__ = ("_limits", "_of_peer", "count", "is_tight", "size", "waited_ms")

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._of_peer: dict[object, int] = {}
        self.count = 0
        """Waiting requests."""
        self.size = 0
        """Bytes of their bodies."""
        self.waited_ms = 0
        """Ms that a request served now has waited, at least."""
        self.is_tight = False
        """Whether a new request has to be checked with `refusal`. The hot path reads only this."""

    @property
    def limits(self) -> AdmissionLimits:
        """How many requests may wait, and for how long."""
        return self._limits

    def refusal(self, peer: object) -> str | None:
        """The remark for a request of this peer that is refused; None admits it."""
        return refusal(self._limits, self._load(peer))

    def enter(self, peer: object, size: int) -> None:
        """Count a request of `size` bytes that waits from now on."""
        self.count += 1
        self.size += size
        self._of_peer[peer] = self._of_peer.get(peer, 0) + 1
        self._update_is_tight()

    def leave(self, peer: object, size: int) -> None:
        """Count it as waiting no longer."""
        self.count -= 1
        self.size -= size
        left = self._of_peer[peer] - 1
        if left:
            self._of_peer[peer] = left
        else:
            del self._of_peer[peer]
        self._update_is_tight()

    def change(self, limits: AdmissionLimits) -> None:
        """Set other limits; requests that wait already go on waiting."""
        self._limits = limits
        self._update_is_tight()

    def late(self, waited_ms: int) -> None:
        """Note that requests served now have waited for `waited_ms`, at least."""
        self.waited_ms = waited_ms
        self._update_is_tight()

    def _update_is_tight(self) -> None:
        # Far from the limits, as for almost all requests, no call is needed.
        limits = self._limits
        self.is_tight = (
            self.waited_ms > 0 or 2 * self.count >= limits.count - 1 or 2 * self.size >= limits.size
        ) and is_near_limit(limits, self._load(None))

    def _load(self, peer: object) -> RequestLoad:
        return RequestLoad(
            count=self.count,
            size=self.size,
            of_peer=self._of_peer.get(peer, 0),
            waited_ms=self.waited_ms,
        )


class LoopLag:
    """How long the event loop has been busy since it last polled for events."""

    __slots__ = (
        "_age_ms",
        "_begun",
        "_gates",
        "_is_over",
        "_last_ms",
        "_number",
        "_waited_ms",
        "at_end",
        "check_ms",
        "count",
        "crowded",
    )  # fmt: skip

    def __init__(self, gates: Iterable[RequestLimit] = ()) -> None:
        self._gates = tuple(gates)
        self.count = 0
        """Requests received since the start."""
        self._begun = 0
        self._age_ms = 0
        self._last_ms = 0
        self._waited_ms = 0
        self._is_over = True
        self._number = 0
        self.check_ms = 0 if self._gates else NEVER_MS
        """Monotonic time before which the clock need not be read again."""
        self.crowded = 0
        """Number of this iteration of the loop once it has served a burst; 0 before.

        libuv polls again within one while 1,024 connections are ready, up to 48 times, and runs
        neither callbacks nor timers meanwhile. Connections that are read twice in a crowded
        iteration wait for the next one, so that it comes to an end.
        """
        self.at_end: list[Callable[[], object]] = []
        """Called once, when a crowded iteration ends."""

    def look(self, now_ms: int) -> None:
        """Measure how long this iteration of the loop has lasted, and tell the limits."""
        if self._is_over:
            self._is_over = False
            self._number += 1
            self._age_ms = 0
            self._begun = self.count
            asyncio.get_running_loop().call_soon(self._end)
        else:
            count = self.count - self._begun
            self.crowded = self._number if is_burst(count) else 0
            self._age_ms = loop_lag_ms(self._age_ms, now_ms - self._last_ms)
            self._tell(waited_ms(self._age_ms, count))
        self._last_ms = now_ms
        self.check_ms = now_ms + CLOCK_CHECK_MS

    def _end(self) -> None:
        """Start a new iteration: the loop polls for events again."""
        self._is_over = True
        self.crowded = 0
        if self._age_ms:
            self._tell(0)
        callbacks, self.at_end = self.at_end, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the others must not wait for ever
                log.exception("replies that were due are lost")

    def lag(self, waited_ms: int) -> None:
        """Requests of a connection that is behind by `waited_ms` are served next; 0 ends that."""
        for gate in self._gates:
            gate.late(max(waited_ms, self._waited_ms))

    def _tell(self, waited_ms: int) -> None:
        self._waited_ms = waited_ms
        for gate in self._gates:
            gate.late(waited_ms)


class ReadBurst:
    """Requests of one connection that follow each other without a pause."""

    __slots__ = ("_age_ms", "_last_ms", "count", "is_full", "size")

    def __init__(self, now_ms: int) -> None:
        self._age_ms = 0
        self._last_ms = now_ms
        self.count = 0
        """Requests of the burst."""
        self.size = 0
        """Bytes of the burst."""
        self.is_full = False
        """Whether the last read filled its buffer, so that more may wait in the socket."""

    def resume(self, now_ms: int) -> None:
        """Go on after the peer held it up: what it has waited until now is its own doing."""
        self._age_ms, self._last_ms = 0, now_ms

    def waited_ms(self, now_ms: int) -> int:
        """Ms that its next request has waited, at least."""
        self._age_ms = loop_lag_ms(self._age_ms, now_ms - self._last_ms)
        self._last_ms = now_ms
        return waited_ms(self._age_ms, self.count)
