"""Admission: which requests a broker refuses as busy, and whom it drops, before its memory grows.

A request costs memory while it waits: for the disk, for a message, for another peer. Those of one
kind have so many places. Who finds none is told at once to come again, which clients of 5.x do with
another broker; nothing of a refused request was done.

    places   0 ............ half ............ all
                             │                 └─ nobody else gets one
                             └─ no single connection has more than these

Time is the other limit. Requests that wait in front of the broker, in the sockets, cost it nothing;
but answers that come when their askers have given up are work for nobody, and are asked for again.
What the genuine broker measures in its queues we can only know of one turn of the event loop: what
is served late in it has waited at least since it began. [PCBUSY_CLEAN_QUEUE] and [REJECTREQUEST]
have no place here: they tell of a thread that holds the log's lock for a second, and here the
thread that would tell it is the one that writes.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

W = TypeVar("W")

BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of requests of one kind that may wait: as many as 64 messages of the largest size have."""

CLOCK_CHECK_MS: Final = 20
"""Between two looks at the clock within a turn of the loop: a tenth of what senders may wait."""

PAUSE_MS_MAX: Final = 2 * CLOCK_CHECK_MS
"""One pause counts no longer than this, in ms: a machine that stood still has no more work to do
than before, so only a turn that works on and on is too long."""

BURST_MIN: Final = 1_000
"""Fewer requests in one turn are no crowd: what made the turn long, a hundred new files or a slow
disk, would not be shorter without them; and a client that waits 300 ms is better off than one that
is sent away. So many ordinary sends take 30 ms."""

UNSENT_TOTAL_MAX: Final = 512 * 1024 * 1024
"""Bytes of answers, of all connections together, that wait for clients to take them: as many as
500 that read nothing have, each with a full buffer."""

OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
"""The genuine broker's words when a queue in front of its threads is full."""

WAITED_TOO_LONG: Final = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {}ms, size of queue: {}"
)
"""Its words for a request that has waited too long in such a queue."""


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of one kind may wait, and how long."""

    count: int
    """Places, as many as the genuine queue of that kind has."""
    size: int = BYTES_MAX
    """Bytes that the waiting ones may have together."""
    wait_ms: int | None = None
    """How long a request may have waited before it is served; None is for ever."""


class RequestLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What waits when a request of a kind comes."""

    count: int
    size: int
    of_peer: int
    """How many of them came over the same connection."""
    waited_ms: int = 0
    """How long, at least, the new one has waited."""


def refusal(limits: AdmissionLimits, load: RequestLoad) -> str | None:
    """What to tell a request that is not taken; None takes it."""
    if load.count >= limits.count or load.size >= limits.size:
        return OVERLOAD
    if load.of_peer >= max(limits.count // 2, 1):
        return OVERLOAD
    if limits.wait_ms is not None and load.waited_ms > limits.wait_ms:
        return WAITED_TOO_LONG.format(load.waited_ms, load.count)
    return None


def is_near_limit(limits: AdmissionLimits, load: RequestLoad) -> bool:
    """Whether the next request has to be judged: far from every limit nobody need look."""
    return (
        2 * load.count >= limits.count - 1
        or 2 * load.size >= limits.size
        or (limits.wait_ms is not None and load.waited_ms > limits.wait_ms)
    )


def loop_lag_ms(age_ms: int, since_look_ms: int) -> int:
    """For how long a turn of the loop has been at work, so long after the last look at it."""
    return age_ms + min(since_look_ms, PAUSE_MS_MAX)


def waited_ms(age_ms: int, count: int) -> int:
    """How long a request has waited at least that is the next after so many of one turn."""
    return age_ms if count >= BURST_MIN else 0


def slow_readers(untaken: Mapping[W, int], limit: int = UNSENT_TOTAL_MAX) -> list[W]:
    """Which connections to drop so that the others' untaken answers stay within the limit.

    The largest first: who reads has next to nothing waiting, and is never among them.
    """
    left = sum(untaken.values())
    found: list[W] = []
    for who in sorted(untaken, key=lambda who: untaken[who], reverse=True):
        if left <= limit:
            break
        left -= untaken[who]
        found.append(who)
    return found
