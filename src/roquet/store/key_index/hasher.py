"""Key hashes: Java's hash of `topic#key`, made non-negative as index files store it."""

from collections.abc import Callable, Sequence
from typing import Final

from roquet.wire.java_hash import hash_code
from roquet.wire.records.partial_decode import index_keys
from roquet.wire.records.property_text import readable_text
from roquet.wire.records.speedups import compiled

_POSITIVE: Final = 0x7FFF_FFFF
"""Mask of a negated hash; the least number has no absolute value and becomes 0."""

HashedKeys = tuple[list[int], list[int]]
"""Hashes of keys, and the index of each key's record."""


def hash_key(topic: bytes, key: bytes) -> int:
    """The hash of one key of a topic; invalid UTF-8 is decoded as Java does."""
    return abs(hash_code(readable_text(topic + b"#" + key))) & _POSITIVE


def hash_keys(topics: Sequence[bytes], texts: Sequence[bytes]) -> HashedKeys:
    """Hashes of the keys of several records, given their topics and encoded properties."""
    return key_hashes(topics, texts, hash_key)


@compiled
def key_hashes(
    topics: Sequence[bytes], texts: Sequence[bytes], hash_of: Callable[[bytes, bytes], int]
) -> HashedKeys:
    """Hashes of the keys of several records, each computed by `hash_of`."""
    hashes: list[int] = []
    owners: list[int] = []
    for owner, (topic, text) in enumerate(zip(topics, texts, strict=True)):
        for key in index_keys(text):
            hashes.append(hash_of(topic, key))
            owners.append(owner)
    return hashes, owners
