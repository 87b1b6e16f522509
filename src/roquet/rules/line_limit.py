"""Line limit: which lines of a log are written when a client can cause any number of them.

Each place in the code that logs has a bucket: a burst of lines at once, then one in ten seconds. So
a place writes at most some 9,000 lines a day, a few MB, whatever clients send.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from roquet.rules.bounded_cache import BoundedCache

BURST: Final = 100
"""Lines of one place that are written one after another: a cluster's brokers that join at once, or
the damages of one file, each have their line."""

PAUSE_MS: Final = 10_000
"""Time in ms after which a place may write one more line."""

PLACES_MAX: Final = 4_096
"""Places that are remembered, about 200 bytes each: more than the package has."""


class _PlaceBucket(msgspec.Struct):
    at_ms: int
    lines: float = BURST
    left_out: int = 0
    """Lines left out since the last one that was written."""


class LineLimit:
    """Decides for each line whether it is written."""

    def __init__(self) -> None:
        self._buckets: BoundedCache[Hashable, _PlaceBucket] = BoundedCache(PLACES_MAX)

    def left_out_before(self, place: Hashable, now_ms: int) -> int | None:
        """The number of lines of this place left out before this one; None leaves this out, too."""
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = _PlaceBucket(now_ms)
            self._buckets.put(place, bucket)
        passed_ms = max(0, now_ms - bucket.at_ms)  # a wall clock may be set back
        bucket.lines = min(BURST, bucket.lines + passed_ms / PAUSE_MS)
        bucket.at_ms = now_ms
        if bucket.lines < 1:
            bucket.left_out += 1
            return None
        bucket.lines -= 1
        left_out, bucket.left_out = bucket.left_out, 0
        return left_out
