"""Fair share: how long a connection pauses after one of its requests held the loop for long.

    ── request runs 40 ms ──▶ other connections, 40 ms ──▶ next request of that connection

One event loop serves all connections, so a request interrupts all others. Slow requests of all
connections together get at most half of the time, however many connections send them.
"""

from typing import Final

SLOW_MS: Final = 10
"""A request that takes this long makes its connection pause; ordinary ones take microseconds."""

COMMON_SLOW_MS: Final = 25
"""Limit for sends, pulls and the like: the largest batches take this long on a busy machine, and a
client that sends them in sequence sends as many messages as a thousand others."""

PAUSE_MS_MAX: Final = 500
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
    return min(max(free_ms, now_ms) + over_ms, now_ms + PAUSE_MS_MAX)
