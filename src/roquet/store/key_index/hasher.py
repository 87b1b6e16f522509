"""KeyHasher: Java's hash of `topic#key`, made non-negative as index files store it.

Keys of a client begin alike, so the hash of the beginning is cached and only the last characters
are added; the same for the beginning's own beginning, which changes less often.

    UNIQ_KEY  7F0000015AB4…0123 45 67
              └ stem ────┘└ mid ┘└ ending
              └ beginning ───────┘
"""

from collections.abc import Iterable, Sequence
from struct import unpack
from typing import Final, TypeVar

from roquet.model.errors import RecordError
from roquet.wire.java_hash import hash_code, hash_units
from roquet.wire.records.property_text import decode_text

_ENDING_SIZE: Final = 2
"""Characters at the end of a key that are hashed each time: a client's message counter."""

_MIDDLE_SIZE: Final = 6
"""Characters in front of the ending, which hold the millisecond; the rest stays for a minute."""

_CACHED_MAX: Final = 4096
"""Cached hashes of beginnings: about one per client and millisecond or minute."""

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_POSITIVE: Final = 0x7FFF_FFFF
"""Mask of a negated hash; the least number has no absolute value and becomes 0."""

_Text = TypeVar("_Text", bytes, tuple[bytes, bytes])


class _Endings(dict[bytes, int]):
    """The contribution of two ASCII characters at the end of a key to its hash."""

    def __missing__(self, ending: bytes) -> int:
        added = self[ending] = hash_units(ending)
        return added


_ENDINGS: Final = _Endings()


class KeyHasher:
    """The hashes under which the key index files messages."""

    def __init__(self) -> None:
        self._beginnings: dict[tuple[bytes, bytes], int] = {}
        """By topic and the key without its ending, both ASCII and not empty."""
        self._stems: dict[bytes, int] = {}

    def __call__(self, topic: bytes, key: bytes) -> int:
        """The hash of one key of a topic."""
        return self.of_all([topic], [key])[0]

    def of_all(self, topics: Sequence[bytes], keys: Sequence[bytes]) -> list[int]:
        """Hashes of several keys, each with its topic, in a fraction of the time per key."""
        if (
            not b"".join(keys).isascii()
            or not all(map(bytes.isascii, set(topics)))
            or min(map(len, keys), default=0) < _ENDING_SIZE
        ):
            return list(map(_hash, topics, keys))
        places = list(zip(topics, [key[:-_ENDING_SIZE] for key in keys], strict=True))
        begun = {place: self._beginning_hash(place) for place in set(places)}
        return _positive(
            begun[place] + _ENDINGS[key[-_ENDING_SIZE:]] & _MASK
            for place, key in zip(places, keys, strict=True)
        )

    def of_columns(self, topic: bytes, columns: Sequence[bytes]) -> list[int]:
        """Hashes of ASCII keys of one length and topic, given character by character.

        A column of a single repeated character, as most are, adds the same to all hashes. The
        others are added as one large number each, in which every key has a lane of eight bytes: no
        sum overflows its lane.
        """
        count, shared, power, total = len(columns[0]), 0, 1, 0
        lanes = bytearray(8 * count)
        for column in reversed(columns):
            if column.count(column[0]) == count:
                shared += column[0] * power
            else:
                lanes[::8] = column
                total += int.from_bytes(lanes, "little") * power
            power = power * 31 & _MASK
        shared += hash_code(decode_text(topic + b"#")) * power
        lanes[:] = (shared & _MASK).to_bytes(8, "little") * count
        total += int.from_bytes(lanes, "little")
        return _positive(unpack(f"<{2 * count}I", total.to_bytes(8 * count, "little"))[::2])

    def _beginning_hash(self, place: tuple[bytes, bytes]) -> int:
        """The hash of a topic and the beginning of its key, shifted for the ending."""
        known = self._beginnings.get(place)
        if known is None:
            beginning = b"#".join(place)
            stem, middle = beginning[:-_MIDDLE_SIZE], beginning[-_MIDDLE_SIZE:]
            before = self._stems.get(stem)
            if before is None:
                before = _cache(self._stems, stem, hash_units(stem) * 31 ** len(middle))
            known = (before + hash_units(middle)) * 31**_ENDING_SIZE
            known = _cache(self._beginnings, place, known)
        return known


def _positive(hashes: Iterable[int]) -> list[int]:
    """Unsigned hashes as index files store them."""
    return [hashed if hashed < _SIGN else -hashed & _POSITIVE for hashed in hashes]


def _hash(topic: bytes, key: bytes) -> int:
    """The hash of any key and topic; invalid UTF-8 is decoded as Java does."""
    raw = topic + b"#" + key
    try:
        text = decode_text(raw)
    except RecordError:
        text = raw.decode("utf-8", "replace")
    return abs(hash_code(text)) & _POSITIVE


def _cache(known: dict[_Text, int], text: _Text, hashed: int) -> int:
    """Cache the hash of a text, shifted for the characters that follow."""
    if len(known) >= _CACHED_MAX:
        known.clear()
    moved = known[text] = hashed & _MASK
    return moved
