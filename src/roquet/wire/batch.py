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
_LENGTH: Final = Struct(">h")
BATCH_ITEM_SIZE_MIN: Final = _HEAD.size + _LENGTH.size
"""Bytes that one message of a batch takes besides its body and properties."""


class BatchItem(msgspec.Struct, frozen=True):
    """One message of a batch: the rest is said once, in the call's header."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch send."""
    parts: list[bytes] = []
    for item in items:
        body, properties = item.body, item.properties
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageIllegal(
                f"properties of {len(properties)} bytes are over {PROPERTIES_SIZE_MAX}"
            )
        total = BATCH_ITEM_SIZE_MIN + len(body) + len(properties)
        parts += (
            _HEAD.pack(total, 0, 0, item.flag, len(body)),
            body,
            _LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(body: bytes | memoryview) -> list[BatchItem]:
    """The messages of a batch; a length that disagrees spoils the whole batch."""
    body, end, at = bytes(body), len(body), 0
    items: list[BatchItem] = []
    while at < end:
        if end - at < BATCH_ITEM_SIZE_MIN:
            raise _malformed(len(items), at, "is cut short")
        total, _, _, flag, body_size = _HEAD.unpack_from(body, at)
        if not BATCH_ITEM_SIZE_MIN <= total <= end - at:
            raise _malformed(len(items), at, f"claims {total} of {end - at} bytes")
        body_at = at + _HEAD.size
        properties_at = body_at + body_size + _LENGTH.size
        if body_size < 0 or properties_at > at + total:
            raise _malformed(len(items), at, f"claims a body of {body_size} bytes")
        (properties_size,) = _LENGTH.unpack_from(body, properties_at - _LENGTH.size)
        at += total
        if properties_size < 0 or properties_at + properties_size != at:
            raise _malformed(len(items), at - total, "has lengths that disagree with its total")
        items.append(BatchItem(flag, body[body_at : body_at + body_size], body[properties_at:at]))
    return items


def _malformed(index: int, at: int, what: str) -> RecordError:
    return RecordError(f"message {index} of the batch (at byte {at}) {what}")
