"""Liveness: peers that have been silent for longer than allowed."""

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

SILENCE_MS_MAX: Final = 120_000
"""Four registrations of 30 s: what a broker may miss before it counts as dead."""


class LastSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a peer's last sign of life, and how long it may be silent after it."""

    seen_ms: int
    limit_ms: int = SILENCE_MS_MAX

    def expired(self, now_ms: int) -> bool:
        """Whether the silence is longer than allowed."""
        return now_ms - self.seen_ms > self.limit_ms


def silent_peers(peers: Mapping[K, LastSeen], now_ms: int) -> list[K]:
    """Keys of the peers that have been silent for too long."""
    return [key for key, seen in peers.items() if seen.expired(now_ms)]
