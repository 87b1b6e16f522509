"""Who has gone silent."""

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

SILENCE_MS_MAX: Final = 120_000
"""Four registrations of 30 s: what a broker may miss before it counts as dead."""


class LastSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The last sign of life of someone, and how long they may stay silent after it."""

    seen_ms: int
    limit_ms: int = SILENCE_MS_MAX

    def expired(self, now_ms: int) -> bool:
        """Whether the silence is longer than allowed."""
        return now_ms - self.seen_ms > self.limit_ms


def silent_peers(signs: Mapping[K, LastSeen], now_ms: int) -> list[K]:
    """Those who have been silent for too long."""
    return [key for key, sign in signs.items() if sign.expired(now_ms)]
