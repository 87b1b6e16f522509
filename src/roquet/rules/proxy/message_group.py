"""Queue of a message group: the same on every proxy, ours and the genuine one.

Source: Guava's `Hashing.consistentHash` of Java's hash code, by which Apache RocketMQ's proxy
chooses; the algorithm is the jump consistent hash of Lamping and Veach (arXiv 1406.2294).
"""

from typing import Final

_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = 2**64 - 1


def queue_index(hashed: int, count: int) -> int:
    """Index among `count` queues, at least one, of a group with this Java hash code."""
    state, candidate = hashed & _MASK, 0
    while True:
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < count:
            return candidate
        candidate = following
