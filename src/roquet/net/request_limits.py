"""Gates: how many requests of a kind wait, and whether another one is taken; turns of the loop.

A request that is answered at once passes a gate that is not tight, and that is all it costs. Only
those that wait are counted. What is decided is in rules.admission.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from roquet.rules.admission import (
    CLOCK_CHECK_MS,
    AdmissionLimits,
    RequestLoad,
    is_near_limit,
    loop_lag_ms,
    refusal,
    waited_ms,
)

NEVER_MS: Final = 1 << 62
"""A time of the stopwatch that does not come."""


class RequestLimit:
    """The requests of one kind that wait for their answers."""

    __slots__ = ("_limits", "_of_peer", "count", "is_tight", "size", "waited_ms")

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._of_peer: dict[object, int] = {}
        self.count = 0
        """How many wait."""
        self.size = 0
        """How many bytes their requests had."""
        self.waited_ms = 0
        """How long, at least, a request that is served now has waited."""
        self.is_tight = False
        """Whether a new one has to be judged: who comes looks here first, and mostly only here."""

    @property
    def limits(self) -> AdmissionLimits:
        """How many may wait, and how long."""
        return self._limits

    def refusal(self, peer: object) -> str | None:
        """What to tell a request of this peer that is not taken; None takes it."""
        return refusal(self._limits, self._load(peer))

    def enter(self, peer: object, size: int) -> None:
        """A request of so many bytes waits from now on."""
        self.count += 1
        self.size += size
        self._of_peer[peer] = self._of_peer.get(peer, 0) + 1
        self._look()

    def leave(self, peer: object, size: int) -> None:
        """It waits no longer."""
        self.count -= 1
        self.size -= size
        left = self._of_peer[peer] - 1
        if left:
            self._of_peer[peer] = left
        else:
            del self._of_peer[peer]
        self._look()

    def change(self, limits: AdmissionLimits) -> None:
        """Other limits from now on; who waits already goes on waiting."""
        self._limits = limits
        self._look()

    def late(self, waited_ms: int) -> None:
        """What is served now has waited so long at least."""
        self.waited_ms = waited_ms
        self._look()

    def _look(self) -> None:
        # Far from the limits, where almost all requests are, without a call.
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
    """How long the event loop has been at work since it last looked what else has come."""

    __slots__ = (
        "_age_ms", "_begun", "_gates", "_is_over", "_last_ms", "_waited_ms", "count", "look_ms",
    )  # fmt: skip

    def __init__(self, gates: Iterable[RequestLimit] = ()) -> None:
        self._gates = tuple(gates)
        self.count = 0
        """Requests that came, ever."""
        self._begun = 0
        self._age_ms = 0
        self._last_ms = 0
        self._waited_ms = 0
        self._is_over = True
        self.look_ms = 0 if self._gates else NEVER_MS
        """When it is worth looking at the clock again."""

    def look(self, now_ms: int) -> None:
        """Something was served: learn how old this turn is, and tell the gates."""
        if self._is_over:
            self._is_over = False
            self._age_ms = 0
            self._begun = self.count
            asyncio.get_running_loop().call_soon(self._end)
        else:
            self._age_ms = loop_lag_ms(self._age_ms, now_ms - self._last_ms)
            self._tell(waited_ms(self._age_ms, self.count - self._begun))
        self._last_ms = now_ms
        self.look_ms = now_ms + CLOCK_CHECK_MS

    def _end(self) -> None:
        """The loop looks again at what has come."""
        self._is_over = True
        if self._age_ms:
            self._tell(0)

    def lag(self, waited_ms: int) -> None:
        """Requests of a connection that is behind are next, or 0: those of others."""
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
        """How many they are."""
        self.size = 0
        """How many bytes."""
        self.is_full = False
        """Whether the last read brought all that it could, so that more may wait in the socket."""

    def waited_ms(self, now_ms: int) -> int:
        """How long its next request has waited at least, as in a turn."""
        self._age_ms = loop_lag_ms(self._age_ms, now_ms - self._last_ms)
        self._last_ms = now_ms
        return waited_ms(self._age_ms, self.count)
