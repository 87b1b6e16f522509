"""Body of a batch send: messages of one topic in sequence.

│ total (4) │ magic 0 (4) │ crc 0 (4) │ flag (4) │ length (4), body │ length (2), properties │
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.properties import PROPERTIES_SIZE_MAX

_HEAD: Final = Struct(">iiiii")
_OWN: Final = Struct(">i8xii")
"""The head without magic and checksum, which are not checked."""

_LENGTH: Final = Struct(">h")
HEAD_SIZE: Final = _HEAD.size
LENGTH_SIZE: Final = _LENGTH.size
BATCH_ITEM_SIZE_MIN: Final = HEAD_SIZE + LENGTH_SIZE
"""Bytes of one message of a batch without its body and properties."""

COUNT_MAX: Final = 1 << 31
"""Messages of one batch: more than fit in any frame."""


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch; what all have in common is in the call's header."""

    flag: int
    body: bytes
    properties: bytes


class BatchItemColumns(NamedTuple):
    """Messages of a batch in columns of equal length."""

    flags: list[int]
    bodies: list[bytes]
    properties: list[bytes]


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Encode the body of a batch send."""
    return b"".join([encode_item(item.flag, item.body, item.properties) for item in items])


def encode_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message of a batch."""
    size, properties_size = len(body), len(properties)
    if properties_size > PROPERTIES_SIZE_MAX:
        raise MessageIllegal(
            f"properties of {properties_size} bytes are over {PROPERTIES_SIZE_MAX}"
        )
    head = _HEAD.pack(BATCH_ITEM_SIZE_MIN + size + properties_size, 0, 0, flag, size)
    return b"%b%b%b%b" % (head, body, _LENGTH.pack(properties_size), properties)


def decode_batch(body: bytes | memoryview) -> list[BatchItem]:
    """Messages of a batch; raises RecordError if any length disagrees."""
    return list(map(BatchItem, *decode_columns(body)))


def decode_columns(body: bytes | memoryview, count_max: int = COUNT_MAX) -> BatchItemColumns:
    """Messages of a batch as columns: flags, bodies, properties.

    Raises RecordError if a length disagrees or there are more than `count_max` messages.
    """
    body, end, at = bytes(body), len(body), 0
    flags: list[int] = []
    bodies: list[bytes] = []
    texts: list[bytes] = []
    size_min, unpack_own, unpack_length = BATCH_ITEM_SIZE_MIN, _OWN.unpack_from, _LENGTH.unpack_from
    for _ in range(count_max):
        if at >= end:
            break
        if end - at < size_min:
            raise _malformed(len(flags), at, "is cut short")
        total, flag, body_size = unpack_own(body, at)
        body_at, following = at + HEAD_SIZE, at + total
        body_end = body_at + body_size
        text_at = body_end + LENGTH_SIZE
        if not at + size_min <= following <= end:
            raise _malformed(len(flags), at, f"claims {total} of {end - at} bytes")
        if body_size < 0 or text_at > following:
            raise _malformed(len(flags), at, f"claims a body of {body_size} bytes")
        if text_at + unpack_length(body, body_end)[0] != following:
            raise _malformed(len(flags), at, "has lengths that disagree with its total")
        flags.append(flag)
        bodies.append(body[body_at:body_end])
        texts.append(body[text_at:following])
        at = following
    if at < end:
        raise RecordError(f"a batch of more than {count_max} messages: send several")
    return BatchItemColumns(flags, bodies, texts)


def _malformed(index: int, at: int, what: str) -> RecordError:
    return RecordError(f"message {index} of the batch (at byte {at}) {what}")
