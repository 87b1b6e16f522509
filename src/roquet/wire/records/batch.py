"""Body of a batch send: messages of one topic in sequence.

│ total (4) │ magic 0 (4) │ crc 0 (4) │ flag (4) │ length (4), body │ length (2), properties │
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple, Protocol

import msgspec

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.wire.records.speedups import compiled

_HEAD: Final = Struct(">iiiii")
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


class BatchMessage(Protocol):
    """A message that can be encoded as part of a batch."""

    @property
    def flag(self) -> int:
        """The number that the producer attached to the message."""

    @property
    def body(self) -> bytes:
        """The body, uncompressed: a batch has one system flag."""

    @property
    def properties(self) -> str | bytes:
        """All properties, as text or as its UTF-8 bytes."""


class BatchItemColumns(NamedTuple):
    """Messages of a batch in columns of equal length."""

    flags: list[int]
    bodies: list[bytes]
    properties: list[bytes]


def encode_batch(items: Iterable[BatchMessage]) -> bytes:
    """Encode the body of a batch send."""
    return encode_items(list(items))


@compiled
def encode_items(items: list[BatchMessage]) -> bytes:
    """Encode messages of a batch one after the other."""
    return b"".join([encode_item(item.flag, item.body, _text(item.properties)) for item in items])


def _text(properties: str | bytes) -> bytes:
    if isinstance(properties, bytes):
        return properties
    return properties.encode("utf-8", "surrogatepass")


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
    return BatchItemColumns(*item_columns(bytes(body), count_max))


@compiled
def item_columns(body: bytes, count_max: int) -> tuple[list[int], list[bytes], list[bytes]]:
    """Flags, bodies and properties of a batch's messages. RecordError for a malformed batch."""
    end, at = len(body), 0
    flags: list[int] = []
    bodies: list[bytes] = []
    texts: list[bytes] = []
    while at < end:
        if len(flags) == count_max:
            raise RecordError(f"a batch of more than {count_max} messages: send several")
        if end - at < BATCH_ITEM_SIZE_MIN:
            raise _malformed(len(flags), at, "is cut short")
        total, _, _, flag, body_size = _HEAD.unpack_from(body, at)
        body_end, following = at + HEAD_SIZE + body_size, at + total
        text_at = body_end + LENGTH_SIZE
        if not at + BATCH_ITEM_SIZE_MIN <= following <= end:
            raise _malformed(len(flags), at, f"claims {total} of {end - at} bytes")
        if body_size < 0 or text_at > following:
            raise _malformed(len(flags), at, f"claims a body of {body_size} bytes")
        if text_at + _LENGTH.unpack_from(body, body_end)[0] != following:
            raise _malformed(len(flags), at, "has lengths that disagree with its total")
        flags.append(flag)
        bodies.append(body[at + HEAD_SIZE : body_end])
        texts.append(body[text_at:following])
        at = following
    return flags, bodies, texts


def _malformed(index: int, at: int, what: str) -> RecordError:
    return RecordError(f"message {index} of the batch (at byte {at}) {what}")


_SIZE: Final = Struct(">i")
_SIZE_MIN: Final = _SIZE.size


def block_count(block: bytes | memoryview) -> int:
    """Number of messages in stored records or in the body of a batch, which begin with their sizes.

    They end with the first one whose size is impossible; a cut one counts.
    """
    count, at, end = 0, 0, len(block)
    while at + _SIZE_MIN <= end:
        (size,) = _SIZE.unpack_from(block, at)
        if size < _SIZE_MIN:
            break
        count += 1
        at += size
    return count
