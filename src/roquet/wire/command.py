"""Command: one header and one body, in JSON or the compact form."""

import struct
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

from roquet.model.errors import FieldError, RemoteProtocolError
from roquet.wire.call import Int
from roquet.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, Language, SerializeType
from roquet.wire.compact import (
    COMPACT_HEAD,
    TRUNCATED,
    PackedFields,
    encode_compact,
    read_pairs,
    read_remark,
    write_pairs,
)
from roquet.wire.frame import (
    HEADER_READ_MAX,
    HEADER_SIZE_MAX,
    WORD_SIZE,
    FrameReader,
    LargeFrame,
    header_end,
    join_frame,
)
from roquet.wire.records.property_text import readable_text
from roquet.wire.records.speedups import compiled

JSON: Final = int(SerializeType.JSON)
ROCKETMQ: Final = int(SerializeType.ROCKETMQ)
PYTHON: Final = int(Language.PYTHON)
"""As plain numbers: for every frame, access to an enum member costs more than the comparison."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NO_FIELDS: Final = msgspec.Raw(b"{}")

_LANGUAGES: Final[dict[str | int | None, Language]] = {
    **{language.name: language for language in Language},
    **{language.value: language for language in Language},
}

_NAMES: Final = tuple(language.name for language in Language)


class Command(msgspec.Struct, frozen=True, gc=False):
    """A request or a response.

    `fields` is the header's string map, as received or as made; `ext` decodes it.
    """

    code: int
    language: int = PYTHON
    version: int = VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    fields: msgspec.Raw | PackedFields | dict[str, str] = _NO_FIELDS
    body: bytes = b""
    serialize_type: int = JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def ext(self) -> dict[str, str]:
        """The header's string map: numbers and booleans as Java prints them, without nulls."""
        if not isinstance(self.fields, msgspec.Raw):
            return self.loose()
        return {name: java_text(value) for name, value in self.loose().items() if value is not None}

    def loose(self) -> dict[str, Any]:
        """The header's map with its sender's types; numbers are texts."""
        if isinstance(self.fields, dict):
            return self.fields
        if isinstance(self.fields, PackedFields):
            return self.fields.as_dict()
        import json  # here: the fields of most commands are decoded by msgspec

        text = readable_text(bytes(self.fields))
        try:
            fields = json.loads(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError) as error:
            raise FieldError(f"code {self.code}: extFields are not JSON: {error}") from error
        if fields is None:
            return {}
        if not isinstance(fields, dict):
            raise FieldError(f"code {self.code}: extFields are not an object: {text[:40]!r}")
        return fields


def java_text(value: Any) -> str:
    """Format a header value as Java prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    import json  # here: as above

    return json.dumps(value, separators=(",", ":"))


class _JsonHeader(msgspec.Struct):
    code: Int = 0
    language: str | int | None = "JAVA"
    version: Int = 0
    opaque: Int = 0
    flag: Int = 0
    remark: str | None = None
    ext_fields: msgspec.Raw = msgspec.field(default=_NO_FIELDS, name="extFields")


_decode_json_header = msgspec.json.Decoder(_JsonHeader, strict=False).decode


@compiled
def decode(frame: bytes) -> Command:
    """Decode one frame, given without its length word."""
    kind = frame[0] if frame else JSON
    if kind == JSON:
        end = header_end(frame)
        return _from_json(frame[WORD_SIZE:end], frame[end:])
    if kind == ROCKETMQ:
        return _from_compact(frame)
    raise RemoteProtocolError(f"header of unknown kind {kind}")


def decode_large(frame: LargeFrame) -> Command:
    """Decode a large frame; its body is not copied."""
    command = decode(frame.header)
    msgspec.structs.force_setattr(command, "body", frame.body)
    return command


@compiled
def decode_whole(chunk: bytes, size_max: int) -> list[Command] | None:
    """Decode the frames that fill a chunk; None for one that ends inside a frame."""
    reader = FrameReader(size_max)
    frames = reader.split(chunk)
    return None if reader.pending else [decode(frame) for frame in frames]


def encode(command: Command) -> bytes:
    """Encode a whole frame, with its length word."""
    code, flag, opaque, remark = command.code, command.flag, command.opaque, command.remark
    language, version, ext, body = command.language, command.version, command.ext, command.body
    if command.serialize_type == JSON:
        peer = sender(language, version)
        return encode_json(code, flag, opaque, peer, remark, json_pairs(ext), body)
    return encode_compact(code, flag, opaque, (language, version), remark, write_pairs(ext), body)


def json_pairs(ext: dict[str, str]) -> bytes:
    """Inside of the JSON object of these fields."""
    from json.encoder import encode_basestring_ascii as quoted  # here: as above

    return ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in ext.items()]).encode()


@lru_cache(maxsize=64)
def sender(language: int, version: int) -> bytes:
    """JSON text of language and version, which all headers of one peer share."""
    return f'"language":"{_NAMES[language]}","version":{version}'.encode()


# Plain parameters: every message sent and every reply goes this way.
def encode_json(
    code: int, flag: int, opaque: int, peer: bytes, remark: str | None, pairs: bytes, body: bytes
) -> bytes:
    """Encode a whole frame in JSON, from a `sender` and the inside of the fields' object."""
    remark_json = b"" if remark is None else b"," + json_pairs({"remark": remark})
    if pairs:
        header = b'{"code":%d,"flag":%d,"opaque":%d,%b%b,"extFields":{%b}}' % (
            code, flag, opaque, peer, remark_json, pairs,
        )  # fmt: skip
    else:
        header = b'{"code":%d,"flag":%d,"opaque":%d,%b%b}' % (code, flag, opaque, peer, remark_json)
    return join_frame(header, body)


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        head = _decode_json_header(header)
    except _UNREADABLE:
        head = _from_odd_json(header)
    return Command(
        head.code,
        _LANGUAGES.get(head.language, Language.OTHER),
        head.version,
        head.opaque,
        head.flag,
        head.remark,
        head.ext_fields,
        body,
    )


def _from_odd_json(header: bytes) -> _JsonHeader:
    """Decode a JSON header with a lone surrogate or with bytes that are not UTF-8.

    msgspec rejects them. As in Java, wrong bytes are read as U+FFFD.
    """
    import json  # here: as above

    try:
        values = json.loads(readable_text(header))
        if isinstance(values, dict):
            values["extFields"] = msgspec.Raw(json.dumps(values.get("extFields")).encode())
        return msgspec.convert(values, _JsonHeader, strict=False)
    except (*_UNREADABLE, ValueError) as error:
        raise RemoteProtocolError(f"broken JSON header: {error}") from error


def _from_compact(frame: bytes) -> Command:
    remark, at = None, COMPACT_HEAD.size
    try:
        (word, code, language, version, opaque, flag, remark_size, size) = COMPACT_HEAD.unpack_from(
            frame
        )
        if remark_size:
            field = read_remark(frame, remark_size)
            remark, at, size = field.remark, field.pairs_at, field.pairs_size
        end = WORD_SIZE + (word & HEADER_SIZE_MAX)
        if not at <= at + size <= end <= len(frame) or end > HEADER_READ_MAX:
            _refuse(size, end)
        fields = read_pairs(frame[at : at + size])
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"broken compact header: {error}") from error
    if code in TRUNCATED and not flag & FLAG_RESPONSE:
        code = TRUNCATED[code]
    language = _LANGUAGES.get(language, Language.OTHER)
    body = frame[end:]
    return Command(code, language, version, opaque, flag, remark, fields, body, ROCKETMQ)


def _refuse(size: int, end: int) -> NoReturn:
    if end > HEADER_READ_MAX:
        raise struct.error(f"header of {end} bytes is over the limit {HEADER_READ_MAX}")
    raise struct.error(f"{size} bytes of fields are not what it holds")
