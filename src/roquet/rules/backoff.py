"""Backoff: pauses between attempts, each twice the one before, up to a longest pause."""

from collections.abc import Iterator


def backoff_ms(first_ms: int, max_ms: int | None = None) -> Iterator[int]:
    """Pauses in ms before further attempts, without end; never longer than `max_ms`, if given."""
    pause_ms = first_ms
    while max_ms is None or pause_ms < max_ms:
        yield pause_ms
        pause_ms *= 2
    while True:
        yield max_ms
