"""Compact form of a command's header: encoded and decoded in binary (big endian).

    ┌────────┬────────────┬───────────┬──────────┬────────┬────────────────┬────────────┐
    │code (2)│language (1)│version (2)│opaque (4)│flag (4)│remark len (4) …│ext len (4) …│
    └────────┴────────────┴───────────┴──────────┴────────┴────────────────┴────────────┘

The ext part consists of pairs of name (2 + n) and value (4 + n). They are turned into a MessagePack
map, which a decoder made for the command's type reads without a dictionary between.
"""

from struct import Struct, error
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal
from roquet.wire.codes import RequestCode, SerializeType
from roquet.wire.frame import HEADER_SIZE_MAX, WORD_SIZE
from roquet.wire.records.speedups import compiled

TRUNCATED: Final = {int(c) & 0xFFFF: int(c) for c in RequestCode if c > 0xFFFF}
"""The compact form has 16 bits for a code; the truncated POP codes collide with no other code."""

COMPACT_HEAD: Final = Struct(">IhBhiiii")
"""Head of a frame from FrameReader: word, code, language, version, opaque, flag, length of the
remark and, if that is 0, of the pairs."""

_WHOLE: Final = Struct(">IIhBhiii")
"""Head of a frame for the socket, up to the remark."""

PAIRS_MAX: Final = 1_024
"""Pairs of one header: Apache's requests have up to 30, and a header full of pairs would take tens
of milliseconds."""

_COUNT: Final = Struct(">i")
_NAME: Final = Struct(">h")
_KIND: Final = SerializeType.ROCKETMQ << 24
_FIXED_SIZE: Final = COMPACT_HEAD.size - WORD_SIZE


class PackedFields(msgspec.Struct, frozen=True, gc=False):
    """Pairs in a form that is decoded directly into typed fields."""

    pairs: bytes
    packed: bytes
    """The pairs as a MessagePack map."""

    def as_dict(self) -> dict[str, str]:
        """Values by name."""
        return walk_pairs(self.pairs)


class RemarkField(msgspec.Struct, frozen=True):
    """Remark of a compact header, and where the pairs behind it begin."""

    remark: str
    pairs_at: int
    pairs_size: int
    """Length stated for the pairs, in bytes."""


def read_remark(frame: bytes, size: int) -> RemarkField:
    """Decode the remark of `size` bytes; raises struct.error for a wrong length."""
    begin = COMPACT_HEAD.size - _COUNT.size
    end = begin + size
    if not begin <= end <= len(frame):
        raise error(f"a remark of {size} bytes")
    (pairs_size,) = _COUNT.unpack_from(frame, end)
    return RemarkField(str(frame[begin:end], "utf-8", "replace"), end + _COUNT.size, pairs_size)


def read_pairs(pairs: bytes) -> PackedFields:
    """Decode pairs; raises struct.error for a wrong length."""
    return PackedFields(pairs, pack_pairs(pairs))


@compiled
def pack_pairs(pairs: bytes) -> bytes:
    """The pairs as a MessagePack map."""
    return msgspec.msgpack.encode(walk_pairs(pairs))


def walk_pairs(pairs: bytes) -> dict[str, str]:
    """Decode any pairs one by one; a pair with an empty name or value counts as absent.

    Bytes that are not UTF-8 become U+FFFD, as in Java.
    """
    fields: dict[str, str] = {}
    at, end, left = 0, len(pairs), PAIRS_MAX
    while at < end:
        left -= 1
        if left < 0:
            raise error(f"more than {PAIRS_MAX} fields")
        (name_size,) = _NAME.unpack_from(pairs, at)
        name_at = at + _NAME.size
        count_at = name_at + name_size
        (value_size,) = _COUNT.unpack_from(pairs, count_at)
        value_at = count_at + _COUNT.size
        at = value_at + value_size
        if name_size < 0 or value_size < 0:
            raise error("a negative length")
        if name_size and value_size:
            name, value = pairs[name_at:count_at], pairs[value_at:at]
            fields[name.decode(errors="replace")] = value.decode(errors="replace")
    if at != end:
        raise error(f"{end} bytes of fields are not what it holds")
    return fields


def write_pairs(ext: dict[str, str]) -> bytes:
    """Encode names and values."""
    parts: list[bytes] = []
    for name, value in ext.items():
        # A lone surrogate becomes a question mark, as in Java.
        raw_name, raw_value = name.encode(errors="replace"), value.encode(errors="replace")
        parts += (_NAME.pack(len(raw_name)), raw_name, _COUNT.pack(len(raw_value)), raw_value)
    return b"".join(parts)


# Plain parameters: every reply to a Java benchmark goes this way.
def encode_compact(
    code: int,
    flag: int,
    opaque: int,
    peer: tuple[int, int],
    remark: str | None,
    pairs: bytes,
    body: bytes,
) -> bytes:
    """Encode a whole frame in the compact form; `peer` is the sender's language and version."""
    text = remark.encode(errors="replace") if remark else b""
    size = _FIXED_SIZE + len(text) + len(pairs)
    if size > HEADER_SIZE_MAX:
        raise MessageIllegal(f"header of {size} bytes: {HEADER_SIZE_MAX} fit")
    language, version = peer
    head = _WHOLE.pack(
        WORD_SIZE + size + len(body),
        _KIND | size,
        (code & 0xFFFF ^ 0x8000) - 0x8000,
        language,
        version,
        opaque,
        flag,
        len(text),
    )
    return b"".join((head, text, _COUNT.pack(len(pairs)), pairs, body))
