"""The message record: one layout for the network and the disk.

     0      4      8    12        16    20            28        36        40
    ┌──────┬──────┬────┬─────────┬─────┬─────────────┬─────────┬─────────┬─────────┬───────────┐
    │ total│ magic│ crc│ queue id│ flag│ queue offset│ position│ sys flag│ born ms │ born host │
    └──────┴──────┴────┴─────────┴─────┴─────────────┴─────────┴─────────┴─────────┴───────────┘
    ┌──────────┬────────────┬────────────────┬──────────────┬──────────┬──────────┬────────────┐
    │ stored ms│ store host │ reconsume times│ prepared pos.│ body     │ topic    │ properties │
    └──────────┴────────────┴────────────────┴──────────────┴──────────┴──────────┴────────────┘
     8          8 or 20      4                8              4 + n      1 or 2 + n 2 + n

A host is ip (4 or 16 bytes) and port (4); system flag bits 16 and 32 mark IPv6. The magic
determines the size of the topic's length: V1 one byte, V2 two, for topics over 127 bytes. The crc
covers only the body, and is stored without its sign. Records in a reply follow each other without
gaps; a file of the log ends with a blank: remaining bytes (4), the blank magic (4), anything.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, count, repeat
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.message import StoredMessage
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.wire.records.batch import BatchItem, decode_batch, encode_batch
from roquet.wire.records.compression import decompress as restore
from roquet.wire.records.host_bytes import decode_host, encode_host
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import (
    decode_properties,
    decode_text,
    encode_properties,
    is_well_formed,
)

__all__ = [
    "BatchItem",
    "Record",
    "body_crc",
    "decode",
    "decode_batch",
    "decode_host",
    "decode_many",
    "decode_properties",
    "encode_batch",
    "encode_host",
    "encode_properties",
    "is_well_formed",
    "is_whole",
    "pack",
    "pack_batch",
    "size_of",
    "stored_ms_at",
    "to_message",
]

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

TOTAL_AT: Final = 0
MAGIC_AT: Final = 4
CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
POSITION_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_AT: Final = 40

HEAD: Final = Struct(">iIiiiqqiq")
"""Total, magic, crc, queue id, flag, queue offset, position, system flag, born ms: the fields at
the same offset in every record."""

TOTAL_AND_MAGIC: Final = Struct(">iI")
"""Start of records and blanks."""

RECORD_SIZE_MIN: Final = 91
"""Bytes of an empty V1 record with two IPv4 hosts."""

TOPIC_SIZE_MAX_V1: Final = 127
"""Bytes; a longer topic makes a V2 record, because Java's bytes are signed."""

_FIXED: Final = tuple(
    Struct(f">iIIiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
"""From the total to the body's length, by bits 16 and 32 of the system flag."""

_PLAIN_SIZE: Final = _FIXED[0].size

TOPICS_MAX: Final = 1_024
"""Cached topics: the records of a reply have one."""

_topic: Final = lru_cache(TOPICS_MAX)(decode_text)

_PACKS: Final = tuple((fixed.pack, fixed.size) for fixed in _FIXED)

_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_BYTE: Final = Struct(">B")
_LENGTH_BYTES: Final = tuple(bytes((size,)) for size in range(TOPIC_SIZE_MAX_V1 + 1))
_CRC_MASK: Final = 0x7FFF_FFFF


class BatchColumns(msgspec.Struct, frozen=True, gc=False):
    """Messages of a batch in columns, without what they have in common."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    tag_codes: Sequence[int]

    def __len__(self) -> int:
        return len(self.flags)


# Created with positional arguments: consumers create one per message, and sixteen keywords cost as
# much as the rest.
class Record(msgspec.Struct, frozen=True, gc=False):
    """A record's fields as stored: hosts and properties encoded, the body perhaps compressed."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int
    size: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_position: int
    crc: int


def body_crc(body: bytes) -> int:
    """Checksum of a body as in records."""
    return crc32(body) & _CRC_MASK


def stored_ms_at(sys_flag: int) -> int:
    """Offset of the store time in the record: behind the born host."""
    return 68 if sys_flag & 16 else 56


def size_of(sys_flag: int, body_size: int, topic_size: int, properties_size: int) -> int:
    """Size of the record that `pack` would make, in bytes."""
    topic_length = 1 if topic_size <= TOPIC_SIZE_MAX_V1 else 2
    fixed = _FIXED[sys_flag >> 4 & 3].size
    return fixed + body_size + topic_length + topic_size + 2 + properties_size


# Plain parameters: this is called once per message, and an object for them costs as much as the
# packing itself.
def pack(  # noqa: PLR0913, PLR0917
    queue_id: int,
    flag: int,
    queue_offset: int,
    position: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    stored_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_position: int,
    body: bytes,
    topic: bytes,
    properties: bytes,
) -> bytes:
    """Encode one record."""
    topic_size, properties_size = len(topic), len(properties)
    if properties_size > PROPERTIES_SIZE_MAX:
        raise _too_long(properties_size)
    if topic_size <= TOPIC_SIZE_MAX_V1:
        magic, topic_length = MAGIC_V1, _LENGTH_BYTES[topic_size]
    else:
        magic, topic_length = MAGIC_V2, _SHORT.pack(topic_size)
    pack_fixed, fixed_size = _PACKS[sys_flag >> 4 & 3]
    assert fixed_size == 72 + len(born_host) + len(store_host), "hosts and system flag disagree"
    body_size = len(body)
    total = fixed_size + body_size + len(topic_length) + topic_size + 2 + properties_size
    head = pack_fixed(
        total, magic, crc32(body) & _CRC_MASK, queue_id, flag, queue_offset, position, sys_flag,
        born_ms, born_host, stored_ms, store_host, reconsume_times, prepared_position, body_size,
    )  # fmt: skip
    return b"".join((head, body, topic_length, topic, _SHORT.pack(properties_size), properties))


# Column by column for all records of a batch; shared values are encoded once.
def pack_batch(  # noqa: PLR0913, PLR0917
    queue_id: int,
    queue_offset: int,
    position: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    stored_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_position: int,
    topic: bytes,
    parts: BatchColumns,
) -> tuple[bytes, list[int]]:
    """Encode the records of a batch, without gaps; position, size and tag code of each in turn."""
    magic, topic_length = _topic_length(len(topic))
    named = topic_length + topic
    shared = Struct(f">iq{len(born_host)}sq{len(store_host)}siq").pack(
        sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times, prepared_position
    )
    own = Struct(f">iIIiiqq{len(shared)}si")
    assert own.size == _PACKS[sys_flag >> 4 & 3][1], "hosts and system flag disagree"
    overhead = own.size + len(named) + 2
    middles = {size: named + _properties_length(size) for size in set(map(len, parts.properties))}
    body_sizes, text_sizes = list(map(len, parts.bodies)), list(map(len, parts.properties))
    totals = [overhead + body + text for body, text in zip(body_sizes, text_sizes, strict=True)]
    positions = list(accumulate(totals, initial=position))[:-1]
    heads = map(
        own.pack, totals, repeat(magic), [crc32(body) & _CRC_MASK for body in parts.bodies],
        repeat(queue_id), parts.flags, count(queue_offset), positions, repeat(shared), body_sizes,
    )  # fmt: skip
    chunks: list[bytes] = [b""] * (4 * len(parts))
    chunks[0::4] = heads
    chunks[1::4] = parts.bodies
    chunks[2::4] = map(middles.__getitem__, text_sizes)
    chunks[3::4] = parts.properties
    entries = [0] * (3 * len(parts))
    entries[0::3], entries[1::3], entries[2::3] = positions, totals, parts.tag_codes
    return b"".join(chunks), entries


def _properties_length(size: int) -> bytes:
    """Encoded length of the properties."""
    if size > PROPERTIES_SIZE_MAX:
        raise _too_long(size)
    return _SHORT.pack(size)


def _topic_length(size: int) -> tuple[int, bytes]:
    """Magic and encoded topic length of a record whose topic has `size` bytes."""
    if size <= TOPIC_SIZE_MAX_V1:
        return MAGIC_V1, _LENGTH_BYTES[size]
    return MAGIC_V2, _SHORT.pack(size)


def _too_long(size: int) -> MessageIllegal:
    return MessageIllegal(f"properties of {size} bytes: {PROPERTIES_SIZE_MAX} fit")


def decode(buffer: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> Record:
    """Decode the record at `at`; raises RecordError for anything that is not one whole record."""
    if type(buffer) is bytes and (plain := _plain(buffer, at)) is not None:
        return plain
    view, magic = _whole(memoryview(buffer), at)
    fixed = _FIXED[_INT.unpack_from(view, SYS_FLAG_AT)[0] >> 4 & 3]
    if fixed.size > len(view):
        raise _disagreeing(at)
    head = fixed.unpack_from(view)
    body_at, body_end = fixed.size, fixed.size + head[-1]
    topic_at, properties_at = _inner(view, body_at, body_end, magic)
    if not properties_at:
        raise _disagreeing(at)
    body = bytes(view[body_at:body_end])
    if check_crc and crc32(body) & _CRC_MASK != head[2]:
        raise RecordError(f"record at {at} has a damaged body: its checksum disagrees")
    return Record(
        topic=decode_text(bytes(view[topic_at : properties_at - 2])),
        queue_id=head[3],
        queue_offset=head[5],
        position=head[6],
        size=head[0],
        body=body,
        properties=bytes(view[properties_at:]),
        flag=head[4],
        sys_flag=head[7],
        born_ms=head[8],
        born_host=head[9],
        stored_ms=head[10],
        store_host=head[11],
        reconsume_times=head[12],
        prepared_position=head[13],
        crc=head[2],
    )


def _plain(data: bytes, at: int) -> Record | None:
    """Decode an ordinary record at a third of the cost: V1, two IPv4 hosts, no fault.

    None leaves any other to the slow path, which says what is wrong with it.
    """
    if len(data) - at < RECORD_SIZE_MIN or at < 0:
        return None
    (
        total, magic, crc, queue_id, flag, queue_offset, position, sys_flag, born_ms, born_host,
        stored_ms, store_host, reconsume_times, prepared_position, body_size,
    ) = _FIXED[0].unpack_from(data, at)  # fmt: skip
    end, body_at = at + total, at + _PLAIN_SIZE
    body_end = body_at + body_size
    if magic != MAGIC_V1 or sys_flag & 48 or not body_at <= body_end < end <= len(data):
        return None
    topic_end = body_end + 1 + data[body_end]
    properties_at = topic_end + 2
    size = end - properties_at
    if not 0 <= size <= PROPERTIES_SIZE_MAX or data[topic_end] << 8 | data[topic_end + 1] != size:
        return None
    body = data[body_at:body_end]
    if crc32(body) & _CRC_MASK != crc:
        return None
    return Record(
        _topic(data[body_end + 1 : topic_end]), queue_id, queue_offset, position, total, body,
        data[properties_at:end], flag, sys_flag, born_ms, born_host, stored_ms, store_host,
        reconsume_times, prepared_position, crc,
    )  # fmt: skip


def decode_many(buffer: bytes | memoryview, *, check_crc: bool = True) -> Iterator[Record]:
    """Decode records in sequence; an incomplete one at the end is left out."""
    at, end = 0, len(buffer)
    while end - at >= RECORD_SIZE_MIN and _INT.unpack_from(buffer, at)[0] <= end - at:
        record = decode(buffer, at, check_crc=check_crc)
        yield record
        at += record.size


def is_whole(buffer: bytes | memoryview, at: int = 0) -> bool:
    """Whether a record can be trusted although no record behind it confirms it.

    The checksum covers only the body, so the lengths, the zeros of a torn write and the separators
    of the properties have to confirm the rest.
    """
    try:
        record = decode(buffer, at)
    except RecordError:
        return False
    return record.topic != "" and "\0" not in record.topic and is_well_formed(record.properties)


def to_message(record: Record, *, broker: str = "", decompress: bool = True) -> StoredMessage:
    """Message of a record; with `decompress=False` the body stays as it is stored."""
    return StoredMessage(
        topic=record.topic,
        body=restore(record.body, record.sys_flag) if decompress else record.body,
        properties=decode_properties(record.properties),
        flag=record.flag,
        broker_name=broker,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        position=record.position,
        size=record.size,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        born_host=decode_host(record.born_host),
        stored_ms=record.stored_ms,
        store_host=decode_host(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_position=record.prepared_position,
        offset_message_id=offset_message_id(record.store_host, record.position),
    )


def _whole(view: memoryview, at: int) -> tuple[memoryview, int]:
    """Bytes and magic of the record at `at`."""
    left = len(view) - at
    if left < RECORD_SIZE_MIN:
        raise RecordError(f"record at {at} is cut short: {left} bytes")
    total, magic = TOTAL_AND_MAGIC.unpack_from(view, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"no record at {at}: magic {magic:#x}")
    if not RECORD_SIZE_MIN <= total <= left:
        raise RecordError(f"record at {at} claims {total} of {left} bytes")
    return view[at : at + total], magic


def _inner(view: memoryview, body_at: int, body_end: int, magic: int) -> tuple[int, int]:
    """Start of topic and of properties; zeros if the lengths do not fill the record."""
    length, end = (_BYTE if magic == MAGIC_V1 else _SHORT), len(view)
    topic_at = body_end + length.size
    if body_end < body_at or topic_at > end:
        return 0, 0
    (topic_size,) = length.unpack_from(view, body_end)
    properties_at = topic_at + topic_size + _SHORT.size
    if topic_size < 0 or properties_at > end:
        return 0, 0
    (properties_size,) = _SHORT.unpack_from(view, properties_at - _SHORT.size)
    return (topic_at, properties_at) if properties_size == end - properties_at else (0, 0)


def _disagreeing(at: int) -> RecordError:
    return RecordError(f"record at {at} has lengths that disagree with its total")
