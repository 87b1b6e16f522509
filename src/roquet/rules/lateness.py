"""Lateness: the times of one message as gaps, each with its cause; the longest gap first.

    born ─▶ sent ─▶ scheduled ─▶ stored ─▶ popped ─▶ started ─▶ failed ─▶ retried ─▶ started …

Times come from several clocks: producers', brokers', consumers'. Events are put into the order in
which they must have happened; one whose clock says it was earlier counts as simultaneous.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final

import msgspec

LAST_TRY: Final = 2**31 - 1
"""The try of events that come after all others."""


class Happening(IntEnum):
    """A kind of event. Of one try the lower ones come first; equal tens are ordered by time."""

    BORN = 0
    SENT = 10
    PREPARED = 20
    SCHEDULED = 21
    STORED = 30
    RETRIED = 50
    POPPED = 60
    STARTED = 70
    HANDLED = 71
    FAILED = 72
    DEAD = 80
    NOW = 90
    PASSED = 91
    """Seen now: the group's progress is past the message, and nothing tells since when."""


TAKEN: Final = frozenset({Happening.POPPED, Happening.STARTED})
"""Events by which a member of the group has got the message."""


class Event(msgspec.Struct, frozen=True):
    """An event in the life of a message."""

    at_ms: int
    kind: Happening
    text: str
    """A line for people."""
    tries: int = 0
    """How many times the message had failed before."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: try, stage, time."""
        return self.tries, self.kind // 10, self.at_ms


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of the queue that the group had to handle before this one."""

    queue_id: int
    ahead: int | None = None
    """Messages that were ahead; None when nothing tells."""
    rate: float | None = None
    """Messages of the queue that the group handles in a second; None as above."""
    members: int | None = None
    """Members of the group now; None when no broker tells."""


class Gap(msgspec.Struct, frozen=True):
    """The time between two events, and its cause. Times are in ms since 1970."""

    begin_ms: int
    end_ms: int
    cause: str

    @property
    def ms(self) -> int:
        """Its length."""
        return self.end_ms - self.begin_ms


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events in the order in which they must have happened; no time is before the one in front."""
    ordered: list[Event] = []
    for event in sorted(events, key=lambda event: event.order):
        earliest = ordered[-1].at_ms if ordered else event.at_ms
        ordered.append(msgspec.structs.replace(event, at_ms=max(event.at_ms, earliest)))
    return ordered


def clock_skew_ms(events: Iterable[Event]) -> int:
    """By how much clocks must differ at least for these times; 0 if they need not."""
    given = sorted(events, key=lambda event: event.order)
    moved = zip(in_order(given), given, strict=True)
    return max((after.at_ms - before.at_ms for after, before in moved), default=0)


def gaps(events: Iterable[Event], backlog: Backlog) -> list[Gap]:
    """The gaps between events, the longest first; together they are the time from first to last."""
    found = [Gap(a.at_ms, b.at_ms, _cause(a, b, backlog)) for a, b in pairwise(in_order(events))]
    return sorted((gap for gap in found if gap.ms), key=lambda gap: (-gap.ms, gap.begin_ms))


def is_finished(events: Sequence[Event]) -> bool:
    """Whether a group has handled the message, or given it up.

    Progress past a message whose last try failed is no end: it is stored again for the next try.
    """
    kinds = [event.kind for event in in_order(events)]
    ends = {Happening.HANDLED, Happening.DEAD, Happening.PASSED}
    return kinds[-2:] != [Happening.FAILED, Happening.PASSED] and not ends.isdisjoint(kinds)


def _cause(before: Event, after: Event, backlog: Backlog) -> str:
    kind, then = before.kind, after.kind
    if kind is Happening.STORED and then in TAKEN:
        return _waiting(backlog)
    if kind is Happening.STORED and then is Happening.NOW:
        return f"{_waiting(backlog)}; it still waits"
    cause = _CAUSES.get((kind, then)) or _CAUSES.get((None, then))
    if cause is None and then is Happening.NOW:
        cause = f"since {before.text!r}; nothing later is known"
    return cause or f"between {before.text!r} and {after.text!r}"


def _waiting(backlog: Backlog) -> str:
    text = f"it waited in queue {backlog.queue_id}"
    if backlog.ahead:
        text += f": {backlog.ahead:,} messages were ahead of it"
        if backlog.rate is not None:
            rate = f"{backlog.rate:,.0f}" if backlog.rate >= 10 else f"{backlog.rate:.2g}"
            text += f" and the group handled {rate}/s"
    elif backlog.ahead == 0:
        text += ": no message was ahead of it, so no member was reading the queue, or its handlers"
        text += " or its prefetch buffer were busy"
    if backlog.members == 0:
        text += "; the group has no member now"
    return text


def span_text(ms: int) -> str:
    """`350 ms`, `1.2 s`, `4 min 10 s`, `3 h 20 min`, `2 d 4 h`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


_SENDING: Final = "it was on its way from the producer to the broker, as far as clocks agree"
_IN_RETRY_TOPIC: Final = "it waited in the group's retry topic until a member took it"
_NEXT_TRY: Final = "it failed, and waits for its next try"

_CAUSES: Final[Mapping[tuple[Happening | None, Happening], str]] = {
    **{
        (kind, then): _SENDING
        for kind in (Happening.BORN, Happening.SENT)
        for then in (Happening.PREPARED, Happening.SCHEDULED, Happening.STORED)
    },
    (Happening.BORN, Happening.SENT): "it was in its producer, before it was sent",
    (Happening.SCHEDULED, Happening.STORED): "it was delayed, as its sender had asked",
    (Happening.PREPARED, Happening.STORED): "its transaction was open",
    (Happening.RETRIED, Happening.POPPED): _IN_RETRY_TOPIC,
    (Happening.RETRIED, Happening.STARTED): _IN_RETRY_TOPIC,
    (Happening.POPPED, Happening.STARTED): "it was popped, and in a member's prefetch buffer",
    (Happening.POPPED, Happening.RETRIED): "it was popped and not acknowledged, and came again",
    (Happening.STARTED, Happening.HANDLED): "a handler worked on it, and succeeded",
    (Happening.STARTED, Happening.FAILED): "a handler worked on it, and failed",
    (Happening.STARTED, Happening.RETRIED): "a handler got it and did not succeed; it came again",
    (Happening.STARTED, Happening.STARTED): "a second member got it, as after a rebalance",
    (Happening.FAILED, Happening.RETRIED): (
        "it waited for the next try, as long as the group's retry settings say"
    ),
    (Happening.FAILED, Happening.STARTED): "it waited to be handled again in its queue",
    (Happening.FAILED, Happening.DEAD): "it was not given up yet",
    (Happening.FAILED, Happening.NOW): _NEXT_TRY,
    (Happening.FAILED, Happening.PASSED): _NEXT_TRY,
    (Happening.SCHEDULED, Happening.NOW): "it is delayed, as its sender has asked",
    (Happening.PREPARED, Happening.NOW): "its transaction is open",
    (Happening.RETRIED, Happening.NOW): "it waits in the group's retry topic for a member",
    (Happening.POPPED, Happening.NOW): "it is popped, and not acknowledged",
    (Happening.STARTED, Happening.NOW): "a handler works on it, or ended without a trace",
    (None, Happening.PASSED): "it was handled or skipped at some time; nothing tells when",
}
"""The cause of a gap by the events before and after it; None for any event before."""
