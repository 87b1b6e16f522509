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
from contextlib import suppress
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
from roquet.wire.records.speedups import compiled

__all__ = [
    "BatchItem",
    "Record",
    "SplitRecord",
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
    "pack_split",
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

ENTRY: Final = Struct(">qiq")
"""A queue entry: the record's position and size, and the tag code."""

TOPIC_SIZE_MAX_V1: Final = 127
"""Bytes; a longer topic makes a V2 record, because Java's bytes are signed."""

_FIXED: Final = tuple(
    Struct(f">iIIiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
"""From the total to the body's length, by bits 16 and 32 of the system flag."""

_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_BYTE: Final = Struct(">B")
_CRC_MASK: Final = 0x7FFF_FFFF

ENDS_IN_ZERO: Final = "properties end in a zero byte"


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


class SplitRecord:
    """A record in three parts, so that a large body is written without a copy of it."""

    __slots__ = ("parts", "size")

    def __init__(self, head: bytes, body: bytes, tail: bytes) -> None:
        self.parts = (head, body, tail)
        self.size = len(head) + len(body) + len(tail)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


@compiled
def pack(  # noqa: PLR0913, PLR0917 - the fields of a record
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
    """Encode one record. MessageIllegal for properties that are too long."""
    return bytes(
        pack_split(
            queue_id, flag, queue_offset, position, sys_flag, born_ms, born_host, stored_ms,
            store_host, reconsume_times, prepared_position, body, topic, properties,
        )
    )  # fmt: skip


def pack_split(  # noqa: PLR0913, PLR0917
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
) -> SplitRecord:
    """Encode one record around its body. MessageIllegal for properties that are too long."""
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise MessageIllegal(f"properties of {len(properties)} bytes: {PROPERTIES_SIZE_MAX} fit")
    is_v1 = len(topic) <= TOPIC_SIZE_MAX_V1
    fixed = _FIXED[sys_flag >> 4 & 3]
    assert fixed.size == 72 + len(born_host) + len(store_host), "hosts and system flag disagree"
    head = fixed.pack(
        size_of(sys_flag, len(body), len(topic), len(properties)),
        MAGIC_V1 if is_v1 else MAGIC_V2, body_crc(body), queue_id, flag, queue_offset, position,
        sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times, prepared_position,
        len(body),
    )  # fmt: skip
    topic_length = (_BYTE if is_v1 else _SHORT).pack(len(topic))
    tail = topic_length + topic + _SHORT.pack(len(properties)) + properties
    return SplitRecord(head, body, tail)


@compiled
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
) -> tuple[bytes, bytes]:
    """Encode the records of a batch, without gaps, and their queue entries.

    MessageIllegal for properties that are too long, or that end in a zero byte: recovery takes that
    for a torn write.
    """
    records, entries, at = [], [], position
    rows = zip(parts.flags, parts.bodies, parts.properties, parts.tag_codes, strict=True)
    for index, (flag, body, properties, tag_code) in enumerate(rows):
        record = pack(
            queue_id, flag, queue_offset + index, at, sys_flag, born_ms, born_host, stored_ms,
            store_host, reconsume_times, prepared_position, body, topic, properties,
        )  # fmt: skip
        if properties.endswith(b"\0"):
            raise MessageIllegal(ENDS_IN_ZERO)
        records.append(record)
        entries.append(ENTRY.pack(at, len(record), tag_code))
        at += len(record)
    return b"".join(records), b"".join(entries)


def decode(buffer: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> Record:
    """Decode the record at `at`; raises RecordError for anything that is not one whole record."""
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


def decode_many(buffer: bytes | memoryview, *, check_crc: bool = True) -> Iterator[Record]:
    """Decode records in sequence; an incomplete one at the end is left out."""
    at, end = 0, len(buffer)
    while end - at >= RECORD_SIZE_MIN and _INT.unpack_from(buffer, at)[0] <= end - at:
        record = decode(buffer, at, check_crc=check_crc)
        yield record
        at += record.size


@compiled
def whole_records(data: bytes, at: int) -> tuple[list[Record], int]:
    """Records that follow each other from a place on, and where the first that is not whole is."""
    records: list[Record] = []
    with suppress(RecordError):
        while at < len(data):
            record = decode(data, at)
            records.append(record)
            at += record.size
    return records, at


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
