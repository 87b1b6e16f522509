"""The body of a batch send: messages of one topic one behind the other.

│ total (4) │ magic 0 (4) │ crc 0 (4) │ flag (4) │ length (4), body │ length (2), properties │
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.properties import PROPERTIES_SIZE_MAX

_HEAD: Final = Struct(">iiiii")
_OWN: Final = Struct(">i8xii")
"""The head without magic and checksum, which nobody looks at."""

_LENGTH: Final = Struct(">h")
HEAD_SIZE: Final = _HEAD.size
LENGTH_SIZE: Final = _LENGTH.size
BATCH_ITEM_SIZE_MIN: Final = HEAD_SIZE + LENGTH_SIZE
"""Bytes that one message of a batch takes besides its body and properties."""


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch: the rest is said once, in the call's header."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch send."""
    return b"".join([encode_item(item.flag, item.body, item.properties) for item in items])


def encode_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """One message as it stands in the body of a batch send."""
    size, properties_size = len(body), len(properties)
    if properties_size > PROPERTIES_SIZE_MAX:
        raise MessageIllegal(
            f"properties of {properties_size} bytes are over {PROPERTIES_SIZE_MAX}"
        )
    head = _HEAD.pack(BATCH_ITEM_SIZE_MIN + size + properties_size, 0, 0, flag, size)
    return b"%b%b%b%b" % (head, body, _LENGTH.pack(properties_size), properties)


def decode_batch(body: bytes | memoryview) -> list[BatchItem]:
    """The messages of a batch; a length that disagrees spoils the whole batch."""
    body, end, at = bytes(body), len(body), 0
    items: list[BatchItem] = []
    size_min, unpack_own, unpack_length = BATCH_ITEM_SIZE_MIN, _OWN.unpack_from, _LENGTH.unpack_from
    while at < end:
        if end - at < size_min:
            raise _malformed(len(items), at, "is cut short")
        total, flag, body_size = unpack_own(body, at)
        if not size_min <= total <= end - at:
            raise _malformed(len(items), at, f"claims {total} of {end - at} bytes")
        body_at = at + HEAD_SIZE
        properties_at = body_at + body_size + LENGTH_SIZE
        if body_size < 0 or properties_at > at + total:
            raise _malformed(len(items), at, f"claims a body of {body_size} bytes")
        (properties_size,) = unpack_length(body, properties_at - LENGTH_SIZE)
        at += total
        if properties_size < 0 or properties_at + properties_size != at:
            raise _malformed(len(items), at - total, "has lengths that disagree with its total")
        items.append(BatchItem(flag, body[body_at : body_at + body_size], body[properties_at:at]))
    return items


def _malformed(index: int, at: int, what: str) -> RecordError:
    return RecordError(f"message {index} of the batch (at byte {at}) {what}")
