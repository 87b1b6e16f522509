"""Admission control: which requests a broker refuses as busy before its memory grows.

A request costs memory while it waits: for the disk, for a message, for another peer. The number of
waiting requests is limited for each kind. A request over the limit is refused at once, and clients
of 5.x retry with another broker; nothing of a refused request was done.

    waiting  0 ............ half ............ limit
                             │                 └─ everybody is refused
                             └─ no single connection may have more than these

Time is the other limit. Requests that wait in front of the broker, in the sockets, cost it nothing;
but replies that come after their clients gave up are wasted work, and are asked for again. Apache's
broker measures the wait in its queues. Here it is known only for one iteration of the event loop: a
request served late in it has waited at least since the iteration began. [PCBUSY_CLEAN_QUEUE] and
[REJECTREQUEST] do not exist here: they report a thread that holds the log's lock for a second, and
here the thread that would report it is the one that writes.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

W = TypeVar("W")

BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of waiting requests of one kind: as many as 64 messages of the largest size have."""

CLOCK_CHECK_MS: Final = 20
"""Period of clock checks within one iteration of the loop: a tenth of what senders may wait."""

PAUSE_MS_MAX: Final = 2 * CLOCK_CHECK_MS
"""Longest pause that counts, in ms: a machine that was suspended has no more work than before, so
only an iteration that keeps working is too long."""

BURST_MIN: Final = 1_000
"""With fewer requests in one iteration of the loop, waiting is not the requests' fault: a hundred
new files or a slow disk made it long, and it would not be shorter without them; and a client that
waits 300 ms is better off than one that is refused. This many ordinary sends take 30 ms."""

UNSENT_TOTAL_MAX: Final = 512 * 1024 * 1024
"""Bytes of unsent replies of all connections together: as many as 500 clients cause that read
nothing, each with a full buffer."""

OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
"""Remark of Apache's broker when a queue in front of its threads is full."""

WAITED_TOO_LONG: Final = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {}ms, size of queue: {}"
)
"""Remark of Apache's broker for a request that has waited too long in such a queue."""


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for requests of one kind: number, bytes, waiting time."""

    count: int
    """Number of requests that may wait, equal to the capacity of Apache's queue of that kind."""
    size: int = BYTES_MAX
    """Bytes of all waiting requests together."""
    wait_ms: int | None = None
    """Longest time that a request may have waited before it is served; None is unlimited."""


class RequestLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting requests of one kind when another one arrives."""

    count: int
    size: int
    of_peer: int
    """Number of them that came over the same connection."""
    waited_ms: int = 0
    """Lower bound of the time that the new request has waited."""


def refusal(limits: AdmissionLimits, load: RequestLoad) -> str | None:
    """Remark for a refused request; None accepts it."""
    if load.count >= limits.count or load.size >= limits.size:
        return OVERLOAD
    if load.of_peer >= max(limits.count // 2, 1):
        return OVERLOAD
    if limits.wait_ms is not None and load.waited_ms > limits.wait_ms:
        return WAITED_TOO_LONG.format(load.waited_ms, load.count)
    return None


def is_near_limit(limits: AdmissionLimits, load: RequestLoad) -> bool:
    """Whether the next request has to be judged; far from every limit that is skipped."""
    return (
        2 * load.count >= limits.count - 1
        or 2 * load.size >= limits.size
        or (limits.wait_ms is not None and load.waited_ms > limits.wait_ms)
    )


def loop_lag_ms(age_ms: int, since_check_ms: int) -> int:
    """Age of the current loop iteration, from its age at the last check and the time since."""
    return age_ms + min(since_check_ms, PAUSE_MS_MAX)


def is_burst(count: int) -> bool:
    """Whether so many requests in one iteration of the loop are why it lasts."""
    return count >= BURST_MIN


def waited_ms(age_ms: int, count: int) -> int:
    """Lower bound of the wait of a request that is number `count` of its loop iteration."""
    return age_ms if is_burst(count) else 0


def slow_readers(unsent: Mapping[W, int], limit: int = UNSENT_TOTAL_MAX) -> list[W]:
    """Connections to drop so that the unsent bytes of the others stay within the limit.

    Those with the most unsent bytes first: a client that reads has next to nothing unsent, and is
    never among them.
    """
    total = sum(unsent.values())
    dropped: list[W] = []
    for connection in sorted(unsent, key=lambda one: unsent[one], reverse=True):
        if total <= limit:
            break
        total -= unsent[connection]
        dropped.append(connection)
    return dropped


SLOW_MS: Final = 10
"""A request that takes this long makes its connection pause; ordinary ones take microseconds."""

COMMON_SLOW_MS: Final = 25
"""Limit for sends, pulls and the like: the largest batches take this long on a busy machine, and a
client that sends them in sequence sends as many messages as a thousand others."""

CONNECTION_PAUSE_MS_MAX: Final = 500
"""Longest pause for one slow request, even if many other connections have sent some."""

LOG_AFTER_MS: Final = 50
"""A request that takes longer is logged: no other connection is served meanwhile."""


def pause_end_ms(free_ms: int, now_ms: int, held_ms: int, *, is_common: bool) -> int:
    """When a connection may continue whose request held the loop for `held_ms`.

    Until `free_ms` other connections pause because of such requests; a result of `now_ms` means at
    once.
    """
    limit_ms = COMMON_SLOW_MS if is_common else SLOW_MS
    if held_ms < limit_ms:
        return now_ms
    over_ms = held_ms - limit_ms if is_common else held_ms
    return min(max(free_ms, now_ms) + over_ms, now_ms + CONNECTION_PAUSE_MS_MAX)
