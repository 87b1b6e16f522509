"""Fair share: how long a connection waits after a request of its own that took long.

    ── held 40 ms ──▶ others, for 40 ms ──▶ next request of that connection

One event loop serves all connections, so a request is an interruption of all others. Slow requests
of all connections together get half of the time at most, however many send them.
"""

from typing import Final

SLOW_MS: Final = 10
"""A request that takes so long has its connection wait: ordinary ones take some microseconds."""

COMMON_SLOW_MS: Final = 25
"""For sends, pulls and the like: the largest batches take so long on a busy machine, and who sends
them one after the other sends as many messages as a thousand others."""

PAUSE_MS_MAX: Final = 500
"""A connection waits no longer for one slow request, even when many others have sent some."""

LOG_AFTER_MS: Final = 50
"""A request that takes longer is logged: nobody else is served meanwhile."""


def pause_end_ms(free_ms: int, now_ms: int, held_ms: int, *, is_common: bool) -> int:
    """When a connection may go on whose request has held the loop for so long.

    Before `free_ms` others wait that had such requests; `now_ms` means at once.
    """
    limit_ms = COMMON_SLOW_MS if is_common else SLOW_MS
    if held_ms < limit_ms:
        return now_ms
    over_ms = held_ms - limit_ms if is_common else held_ms
    return min(max(free_ms, now_ms) + over_ms, now_ms + PAUSE_MS_MAX)
