"""Backoff: pauses between attempts, each twice the one before, or as a user's function says."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

CHOSEN_PAUSE_S_MAX: Final = 24 * 3_600
"""Longest pause in seconds that a user's function may choose: more is taken for a mistake."""


def backoff_ms(first_ms: int, max_ms: int | None = None) -> Iterator[int]:
    """Pauses in ms before further attempts, without end; never longer than `max_ms`, if given."""
    pause_ms = first_ms
    while max_ms is None or pause_ms < max_ms:
        yield pause_ms
        pause_ms *= 2
    while True:
        yield max_ms


def chosen_pause_ms(chosen: object) -> int | None:
    """Pause in ms that a user's function chose, as a timedelta or seconds; None if it is none."""
    seconds = chosen.total_seconds() if isinstance(chosen, timedelta) else chosen
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not 0 <= seconds <= CHOSEN_PAUSE_S_MAX:  # as of NaN
        return None
    return round(seconds * 1000)
