"""Compact: the binary header, read and written (big endian).

    ┌────────┬────────────┬───────────┬──────────┬────────┬────────────────┬────────────┐
    │code (2)│language (1)│version (2)│opaque (4)│flag (4)│remark len (4) …│ext len (4) …│
    └────────┴────────────┴───────────┴──────────┴────────┴────────────────┴────────────┘

Behind it come pairs of name (2 + n) and value (4 + n). Pairs are nearly MessagePack: a text there
has a marker byte before its length, where the compact form has zeros. Genuine clients' benchmarks
speak this form, so each send goes this way: three replacements make it MessagePack, which is read
in a sixth of the time that a loop over the pairs takes.
"""

from struct import Struct, error
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal, RemoteProtocolError
from roquet.wire.codes import FLAG_RESPONSE, RequestCode, SerializeType
from roquet.wire.frame import HEADER_SIZE_MAX, WORD_SIZE

TRUNCATED: Final = {int(c) & 0xFFFF: int(c) for c in RequestCode if c > 0xFFFF}
"""The compact form has 16 bits for a code; what is left of the POP codes means nothing else."""

_HEAD: Final = Struct(">4xhBhiii")
"""Of a frame as FrameReader gives it."""

_WHOLE: Final = Struct(">IIhBhiii")
"""Of a frame as it goes to the socket, up to the remark."""

_COUNT: Final = Struct(">i")
_NAME: Final = Struct(">h")
_KIND: Final = SerializeType.ROCKETMQ << 24
_FIXED_SIZE: Final = 25
_RESPONSE: Final = int(FLAG_RESPONSE)

_STR8: Final = b"\xd9"
_STR16: Final = b"\xda"
_PAIRS_MAX: Final = 63
_MAPS: Final = tuple(b"\xde\0%c" % count for count in range(_PAIRS_MAX + 1))
"""How a MessagePack map of so many pairs begins."""

_unpack_texts: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


Header = tuple[int, int, int, int, int, str | None, dict[str, str]]
"""Code, language, version, opaque, flag, remark, fields."""


def read_header(frame: bytes, header_end: int) -> Header:
    """What the header of a frame (without its length word) says, which ends there."""
    try:
        code, language, version, opaque, flag, remark_size = _HEAD.unpack_from(frame)
        remark_end = _HEAD.size + remark_size
        (size,) = _COUNT.unpack_from(frame, remark_end)
        at = remark_end + _COUNT.size
        if remark_size < 0 or size < 0 or at + size > header_end:
            raise error("its lengths are not what it holds")
        remark = str(frame[_HEAD.size : remark_end], "utf-8") if remark_size else None
        fields = read_pairs(frame[at : at + size])
    except (error, UnicodeDecodeError) as fault:
        raise RemoteProtocolError(f"broken compact header: {fault}") from fault
    if not flag & _RESPONSE and code in TRUNCATED:
        code = TRUNCATED[code]
    return code, language, version, opaque, flag, remark, fields


def read_pairs(pairs: bytes) -> dict[str, str]:
    """Names and values; a pair with an empty name or value is as if it were absent."""
    shorter = pairs.replace(b"\0\0\0", _STR8)  # a value of 1 to 255 bytes
    marked = shorter.replace(b"\0\0", _STR16)  # one of up to 64 KiB
    count = (len(pairs) - len(shorter)) // 2 + len(shorter) - len(marked)
    # What is left of zeros stands before names. Empty texts, zeros in texts and longer ones do not
    # come out well, neither here nor in the decoder: a zero that became a marker inside of a text
    # is no UTF-8.
    if count > _PAIRS_MAX or not (pairs.isascii() or marked.count(0) == count):
        return walk_pairs(pairs)
    try:
        return _unpack_texts(_MAPS[count] + marked.replace(b"\0", _STR8))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return walk_pairs(pairs)


def walk_pairs(pairs: bytes) -> dict[str, str]:
    """The same for any pairs, one after the other; struct.error when a length lies."""
    fields: dict[str, str] = {}
    at, end = 0, len(pairs)
    while at < end:
        (name_size,) = _NAME.unpack_from(pairs, at)
        name_at = at + _NAME.size
        count_at = name_at + name_size
        (value_size,) = _COUNT.unpack_from(pairs, count_at)
        value_at = count_at + _COUNT.size
        at = value_at + value_size
        if name_size < 0 or value_size < 0:
            raise error("a negative length")
        if name_size and value_size:
            fields[pairs[name_at:count_at].decode()] = pairs[value_at:at].decode()
    if at != end:
        raise error(f"{end} bytes of fields are not what it holds")
    return fields


def write_pairs(ext: dict[str, str]) -> bytes:
    """Names and values as they go out."""
    parts: list[bytes] = []
    for name, value in ext.items():
        # Half a surrogate pair becomes a question mark, as Java writes it.
        raw_name, raw_value = name.encode(errors="replace"), value.encode(errors="replace")
        parts += (_NAME.pack(len(raw_name)), raw_name, _COUNT.pack(len(raw_value)), raw_value)
    return b"".join(parts)


# Plain parameters: every reply to a Java benchmark goes this way.
def encode_compact(
    code: int,
    flag: int,
    opaque: int,
    who: tuple[int, int],
    remark: str | None,
    pairs: bytes,
    body: bytes,
) -> bytes:
    """The whole frame in the compact form; `who` is the sender's language and version."""
    text = remark.encode(errors="replace") if remark else b""
    size = _FIXED_SIZE + len(text) + len(pairs)
    if size > HEADER_SIZE_MAX:
        raise MessageIllegal(f"header of {size} bytes: {HEADER_SIZE_MAX} fit")
    language, version = who
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
