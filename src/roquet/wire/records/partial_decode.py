"""Partial decoding of records: the fields that recovery, the key index and filters need."""

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Final
from zlib import crc32

from roquet.model.errors import RecordError
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, decode_text, is_well_formed
from roquet.wire.records.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN

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
_BODY: Final = Struct(">36xi44xi")
"""System flag and, of a record with two IPv4 hosts, the body's length."""
_MAGIC_V1: Final = MAGIC_V1.to_bytes(4, "big")
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


def properties_of(block: bytes, at: int, stop: int) -> bytes:
    """Properties text of the whole record at bytes [at, stop)."""
    topic_at = _body_end(block, at)
    if block[at + 4 : at + 8] == _MAGIC_V1:
        return block[topic_at + block[topic_at] + 3 : stop]
    return block[topic_at + (block[topic_at] << 8 | block[topic_at + 1]) + 4 : stop]


def property_positions(block: bytes, edges: Sequence[int]) -> list[int]:
    """Start of the properties text of each of several records of one topic, without gaps.

    The edges are the starts of the records and, at the end, the end of the last one.
    """
    if len(edges) < 2:
        return []
    # The topic, between body and properties, is equally long in all of them.
    topic_size = edges[1] - len(properties_of(block, 0, edges[1])) - _body_end(block, 0)
    others_size, begins = _PLAIN.size + topic_size, edges[:-1]
    return [
        at + size + others_size if not sys_flag & _HOSTS_V6 else _body_end(block, at) + topic_size
        for at, (sys_flag, size) in zip(
            begins, map(_BODY.unpack_from, repeat(block), begins), strict=True
        )
    ]


def _body_end(block: bytes, at: int) -> int:
    sys_flag: int
    size: int
    sys_flag, size = _BODY.unpack_from(block, at)
    fixed_size = _PLAIN.size
    if sys_flag & _HOSTS_V6:
        fixed_size = _FIXED[sys_flag >> 4 & 3].size
        size = int.from_bytes(block[at + fixed_size - 4 : at + fixed_size], "big")
    return at + fixed_size + size


def property_finder(name: str) -> Callable[[bytes], str | None]:
    """Finder of one property's value in encoded properties, equal to `decode_properties`.

    A part without a value is not a property, and of two with one name the last one counts.
    """
    start = name.encode() + b"\x01"

    def find(properties: bytes) -> str | None:
        before, separator, rest = properties.rpartition(start)
        if not separator:
            return None
        value = rest.partition(b"\x02")[0]
        if not value or (before and before[-1] != _PROPERTY_END):
            # Within another property, or one of two with this name.
            return decode_properties(properties.decode("utf-8", "replace")).get(name)
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode("utf-8", "replace")

    return find


def property_value(properties: bytes, name: bytes) -> bytes | None:
    """Value of one property in encoded properties: the last one, as in a map that was filled."""
    return _value(properties, name + b"\x01")


def tag_code(properties: bytes) -> int:
    """Tag code of an ordinary message's queue entry: Java's hash of the tag.

    0 without a tag, and for a tag that is not UTF-8: such a text has no properties for any reader.
    """
    tag = _value(properties, b"TAGS\x01")
    try:
        return hash_code(decode_text(tag)) if tag else 0
    except RecordError:
        return 0


def index_keys(properties: bytes) -> list[bytes]:
    """Keys of a message in the key index: its unique key, then its own keys."""
    unique = _value(properties, _UNIQUE)
    keys = [unique] if unique else []
    # Most messages have no others: checked here, since a call costs more than the check.
    if properties.rfind(b"KEYS\x01") >= 0 and (own := _value(properties, b"KEYS\x01")):
        keys.extend(filter(None, own.split(b" ")))
    return keys


def key_columns(texts: Sequence[bytes]) -> list[bytes] | None:
    """Unique keys of several messages as columns: all first characters, all second ones, and so on.

    None unless they are ASCII, of one length and at the same index of texts that have no other key.
    Most batches are so, and an operation on one column of characters serves a thousand keys.
    """
    start, count, joined = texts[0].find(_UNIQUE), len(texts), b"".join(texts)
    if start < 0 or joined.count(_UNIQUE) != count or b"KEYS\x01" in joined or not joined.isascii():
        return None
    begin, first = max(start - 1, 0), start + len(_UNIQUE)
    last = texts[0].find(b"\x02", first)
    joined_keys = b"".join([text[begin : last + 1] for text in texts])
    size = last + 1 - begin
    if (
        last <= first
        or len(joined_keys) != size * count
        or (start and joined_keys[0] != _PROPERTY_END)
    ):
        return None
    frame = range(first - begin)
    if any(joined_keys[at::size].count(joined_keys[at]) != count for at in frame):
        return None
    columns = [joined_keys[at::size] for at in range(first - begin, size)]
    if columns.pop().count(b"\x02") != count or b"\x02" in b"".join(columns):
        return None
    return columns


def index_keys_of_all(texts: Sequence[bytes]) -> tuple[Sequence[int], Sequence[bytes]]:
    """Index keys of several messages: the index of each key's message, and the keys, in order."""
    keys = list(map(index_keys, texts))
    indexes = [index for index, own in enumerate(keys) for _ in own]
    return indexes, list(chain.from_iterable(keys))


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
