"""Partial decoding of records: the fields that recovery, the key index and filters need."""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import is_well_formed, readable_text
from roquet.wire.records.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, TOPIC_SIZE_MAX_V1
from roquet.wire.records.speedups import compiled

PartialRecord = tuple[int, int, int, int, int, bytes, bytes]
"""Total, queue id, queue offset, system flag, store time, topic, properties: a plain tuple, since a
scan makes a million of them."""

MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))
"""Magic numbers of both record versions; a blank has another."""

RECORD_START: Final = Struct(">iI20xq")
"""Total, magic and the record's own position: enough to know that a record begins here."""

_FIXED: Final = tuple(
    Struct(f">iIIi4xqqi8x{born}xq{store}x12xi")
    for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
"""Needed fields of a record's fixed part, by bits 16 and 32 of the system flag."""

_PLAIN: Final = _FIXED[0]
_HOSTS_V6: Final = 16 | 32
_PROPERTY_END: Final = 2
_UNIQUE: Final = b"UNIQ_KEY\x01"
"""Start of the property with the unique key."""
_CRC_MASK: Final = 0x7FFF_FFFF


# One function, since another call per record is a tenth of the time of a recovery.
def decode_partly(
    view: memoryview, at: int, limit: int, position: int, check_crc: bool
) -> PartialRecord | None:
    """Fields of the record at `at`; None if there is no whole record.

    `position` must be the record's own position: stale or torn bytes hardly ever have the right
    one.
    """
    if at + RECORD_SIZE_MIN > limit:
        return None
    fixed = _PLAIN
    total, magic, crc, queue_id, offset, own, sys_flag, stored_ms, size = fixed.unpack_from(
        view, at
    )
    end = at + total
    if own != position or total < RECORD_SIZE_MIN or end > limit or magic not in MAGICS:
        return None
    if sys_flag & _HOSTS_V6:
        fixed = _FIXED[sys_flag >> 4 & 3]
        if total < fixed.size:
            return None
        *_, stored_ms, size = fixed.unpack_from(view, at)
    body_at = at + fixed.size
    body_end = body_at + size
    if not body_at <= body_end <= end - 3 or (
        check_crc and crc32(view[body_at:body_end]) & _CRC_MASK != crc
    ):
        return None
    # Topic and properties, if their lengths fill the record to its end.
    texts, width = bytes(view[body_end:end]), 1 if magic == MAGIC_V1 else 2
    topic_end = width + (texts[0] if width == 1 else texts[0] << 8 | texts[1])
    properties_at = topic_end + 2
    left = len(texts) - properties_at
    if left < 0 or texts[topic_end] << 8 | texts[topic_end + 1] != left:
        return None
    topic, properties = texts[width:topic_end], texts[properties_at:]
    return total, queue_id, offset, sys_flag, stored_ms, topic, properties


@compiled
def property_positions(block: bytes, edges: Sequence[int], topic: bytes) -> list[int]:
    """Start of the properties text of each of several records of one topic, without gaps.

    The edges are the starts of the records and, at the end, the end of the last one. A damaged
    record gets a wrong position, the others do not depend on it.
    """
    # The topic, between body and properties. Its size takes a byte, or two in records of version 2,
    # which are those of longer topics; the size of the properties takes two.
    topic_size = len(topic) + (3 if len(topic) <= TOPIC_SIZE_MAX_V1 else 4)
    return [_body_end(block, at) + topic_size for at in edges[:-1]]


def _body_end(block: bytes, at: int) -> int:
    sys_flag = int.from_bytes(block[at + 36 : at + 40], "big")
    body_at = at + _FIXED[sys_flag >> 4 & 3].size
    return body_at + int.from_bytes(block[body_at - 4 : body_at], "big", signed=True)


@compiled
def property_finder(name: str) -> Callable[[bytes], str | None]:
    """Finder of one property's value in encoded properties, equal to `decode_properties`.

    A part without a value is not a property, and of two with one name the last one counts.
    """
    start = name.encode() + b"\x01"

    def find(properties: bytes) -> str | None:
        for part in reversed(properties.split(b"\x02")):
            if part.startswith(start) and len(part) > len(start):
                return part[len(start) :].decode("utf-8", "replace")
        return None

    return find


def property_value(properties: bytes, name: bytes) -> bytes | None:
    """Value of one property in encoded properties: the last one, as in a map that was filled."""
    return _value(properties, name + b"\x01")


def tag_code(properties: bytes) -> int:
    """Tag code of an ordinary message's queue entry: Java's hash of the tag; 0 without one."""
    tag = _value(properties, b"TAGS\x01")
    return hash_code(readable_text(tag)) if tag else 0


def index_keys(properties: bytes) -> list[bytes]:
    """Keys of a message in the key index: its unique key, then its own keys."""
    unique = _value(properties, _UNIQUE)
    keys = [unique] if unique else []
    # Most messages have no others: checked here, since a call costs more than the check.
    if properties.rfind(b"KEYS\x01") >= 0 and (own := _value(properties, b"KEYS\x01")):
        keys.extend(filter(None, own.split(b" ")))
    return keys


def is_torn(topic: bytes, properties: bytes) -> bool:
    """Whether a record with consistent lengths is nevertheless incomplete at its end.

    The checksum covers only the body. Bytes missing after a torn write are zeros, and zeros do not
    occur in a name nor in properties whose control bytes do not pair.
    """
    if 0 in topic or properties.endswith(b"\x00"):
        return True
    return 0 in properties and not is_well_formed(properties)


def _value(properties: bytes, start: bytes) -> bytes | None:
    """Text behind the last `start` that begins a property."""
    before, separator, rest = properties.rpartition(start)
    if not separator:
        return None
    if before and before[-1] != _PROPERTY_END:
        # Within another property, which is rare; the property itself may still come before it.
        at = properties.rfind(b"\x02" + start)
        if at < 0 and not properties.startswith(start):
            return None
        rest = properties[at + 1 + len(start) :]
    return rest.partition(b"\x02")[0]
