"""Fields of calls and replies: to the header's string map and back.

Every value is sent as a string. Received numbers and booleans may be unquoted, and an empty one
means absent (an empty text stays as it is); unknown fields are kept in `Command.ext`.
"""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from roquet.model.errors import FieldError
from roquet.wire.call import NOT_FIELDS, Call, Reply
from roquet.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, RequestCode, ResponseCode
from roquet.wire.command import JSON, PYTHON, Command, encode_json, java_text, json_pairs, sender
from roquet.wire.compact import PackedFields, encode_compact, write_pairs
from roquet.wire.records.speedups import compiled


class HeaderField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a header."""

    name: str
    wire_name: str
    kind: type
    """Type of the value: str, int or bool."""
    annotation: Any
    """The type with its limits."""
    optional: bool
    """Whether it may be None."""
    required: bool


class HeaderCodec(msgspec.Struct, frozen=True, kw_only=True):
    """Encoders and decoders of one class."""

    fields: tuple[HeaderField, ...]
    layout: tuple[tuple[str, bytes, type, bool], ...]
    """Name, name on the wire, type of the value, and whether it may be None, in the order in which
    fields are written. Plain tuples: the compiled encoder reads one for each field."""
    to_json: Callable[[Any], bytes]
    """Inside of the JSON object with a value's fields, each as a string."""
    to_compact: Callable[[Any], bytes]
    """Pairs of the compact form; raises OverflowError for a text of 64 KiB or more."""
    from_json: Callable[[Any], Any]
    """Decode a JSON object whose values have the right types, or are texts of such values."""
    from_packed: Callable[[Any], Any]
    """Decode such a MessagePack map."""


class _HeaderCodecs(dict[type, HeaderCodec]):
    def __missing__(self, struct: type) -> HeaderCodec:
        fields = tuple(_fields(struct))
        self[struct] = codec = HeaderCodec(
            fields=fields,
            layout=tuple(
                (field.name, field.wire_name.encode(), field.kind, field.optional)
                for field in sorted(fields, key=attrgetter("optional"))
            ),
            to_json=_json_writer(fields),
            to_compact=_compiled(_joined(fields, _compact_text)),
            from_json=msgspec.json.Decoder(struct, strict=False).decode,
            from_packed=msgspec.msgpack.Decoder(struct, strict=False).decode,
        )
        return codec


HEADER_CODECS: Final = _HeaderCodecs()
"""Codec by class, made on first use."""


def _fields(struct: Any) -> Iterable[HeaderField]:
    for field in msgspec.structs.fields(struct):
        if field.name not in NOT_FIELDS:
            yield HeaderField(
                name=field.name,
                wire_name=field.encode_name,
                kind=_kind(field.type),
                annotation=field.type,
                optional=NoneType in get_args(field.type),
                required=field.required,
            )


def _kind(annotation: Any) -> type:
    if get_origin(annotation) in {Union, UnionType}:
        (annotation,) = (arg for arg in get_args(annotation) if arg is not NoneType)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation is str or annotation is int or annotation is bool:
        return annotation
    raise TypeError(f"{annotation} cannot be a header field")


# Each writer is compiled from one expression. It takes a third of the time of a loop over the
# fields, for every message sent and every reply. Only names of our own classes get into it.


def _json_writer(fields: Iterable[HeaderField]) -> Callable[[Any], bytes]:
    expression = _joined(fields, _json_text)
    if expression.startswith("b',"):  # the first field is always there, and has no comma
        return _compiled(expression.replace(",", "", 1))
    return _compiled(f"({expression})[1:]")


def _compiled(expression: str) -> Callable[[Any], bytes]:
    names = {"quoted": msgspec.json.Encoder().encode}
    writer: Callable[[Any], bytes] = eval(f"lambda v: {expression}", names)
    return writer


def _joined(fields: Iterable[HeaderField], printed: Callable[[Iterable[HeaderField]], str]) -> str:
    """Expression that writes all fields of v; optional ones are left out if they are None."""
    parts = [printed([field for field in fields if not field.optional])]
    parts += [
        f"(b'' if v.{field.name} is None else {printed([field])})"
        for field in fields
        if field.optional
    ]
    return " + ".join(parts)


def _json_text(fields: Iterable[HeaderField]) -> str:
    """Expression that writes these fields of v, with a comma before each."""
    heads, values = "", ""
    for field in fields:
        value = f"v.{field.name}"
        if field.kind is int:
            heads += f',"{field.wire_name}":"%d"'
            values += f"{value}, "
        elif field.kind is bool:
            heads += f',"{field.wire_name}":"%b"'
            values += f"b'true' if {value} else b'false', "
        else:
            heads += f',"{field.wire_name}":%b'
            values += f"quoted({value}), "
    return f"b'{heads}' % ({values})"


def _compact_text(fields: Iterable[HeaderField]) -> str:
    """Expression that writes these fields of v, with the lengths of name and value."""
    heads, values = "", ""
    for field in fields:
        value = f"v.{field.name}"
        heads += rf"\0\x{len(field.wire_name):02x}{field.wire_name}"
        if field.kind is bool:
            heads += "%b"
            values += rf"b'\0\0\0\4true' if {value} else b'\0\0\0\5false', "
        elif field.kind is int:
            heads += r"\0\0\0%c%b"
            values += f"len(t := b'%d' % {value}), t, "
        else:
            heads += r"\0\0%c%c%b"
            values += f"len(t := {value}.encode()) >> 8, len(t) & 255, t, "
    return f"b'{heads}' % ({values})"


AnyCall = Call[Any]
CallT = TypeVar("CallT", bound=AnyCall)
ReplyT = TypeVar("ReplyT", bound=Reply)
FieldsT = TypeVar("FieldsT", bound=AnyCall | Reply)

_set: Final = msgspec.structs.force_setattr
_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_call(command: Command, call_type: type[CallT]) -> CallT:
    """Decode a request; raises FieldError for a missing or ill-typed field."""
    call = _decode(command, call_type)
    _set(call, "body", command.body)
    return call


def decode_reply(
    command: Command, reply_type: type[ReplyT], accepts: Collection[int] = _SUCCESS
) -> ReplyT | Reply:
    """Decode a response; one whose code is not in `accepts` may be a bare Reply."""
    try:
        reply: ReplyT | Reply = _decode(command, reply_type)
    except FieldError:
        if command.code in accepts:
            raise
        reply = Reply()
    _set(reply, "code", command.code)
    _set(reply, "remark", command.remark)
    _set(reply, "body", command.body)
    return reply


def encode_call(
    call: AnyCall,
    *,
    opaque: int,
    oneway: bool = False,
    language: int = PYTHON,
    version: int = VERSION,
    serialize_type: int = JSON,
) -> bytes:
    """Encode the whole frame of a request."""
    flag = FLAG_ONEWAY if oneway else 0
    return encode_frame(
        call, HEADER_CODECS[type(call)], serialize_type, int(call.code), flag, opaque,
        language, version, None, call.body,
    )  # fmt: skip


def encode_reply(
    reply: Reply, command: Command, *, language: int = PYTHON, version: int = VERSION
) -> bytes:
    """Encode the whole frame of the response to `command`, in the format of the request."""
    return encode_frame(
        reply, HEADER_CODECS[type(reply)], command.serialize_type, reply.code, FLAG_RESPONSE,
        command.opaque, language, version, reply.remark, reply.body,
    )  # fmt: skip


@compiled
def encode_frame(  # noqa: PLR0913, PLR0917 - the parts of a frame
    value: AnyCall | Reply, codec: HeaderCodec, serialize_type: int, code: int, flag: int,
    opaque: int, language: int, version: int, remark: str | None, body: bytes,
) -> bytes:  # fmt: skip
    """Encode the whole frame of a call or reply, with the codec of its class."""
    if serialize_type == JSON:
        pairs = _json_pairs(value, codec)
        return encode_json(code, flag, opaque, sender(language, version), remark, pairs, body)
    pairs = _compact_pairs(value, codec)
    return encode_compact(code, flag, opaque, (language, version), remark, pairs, body)


def to_ext(value: AnyCall | Reply) -> dict[str, str]:
    """String map of a call or reply, without absent fields."""
    fields = HEADER_CODECS[type(value)].fields
    pairs = [(field.wire_name, getattr(value, field.name)) for field in fields]
    return {name: java_text(item) for name, item in pairs if item is not None}


def _json_pairs(value: AnyCall | Reply, codec: HeaderCodec) -> bytes:
    try:
        return codec.to_json(value)
    except UnicodeEncodeError:  # a lone surrogate, which Java's strings can hold
        return json_pairs(to_ext(value))


def _compact_pairs(value: AnyCall | Reply, codec: HeaderCodec) -> bytes:
    try:
        return codec.to_compact(value)
    except (UnicodeEncodeError, OverflowError):  # as above, or a text of 64 KiB or more
        return write_pairs(to_ext(value))


def _decode(command: Command, struct: type[FieldsT]) -> FieldsT:
    fields = command.fields
    decoded: FieldsT
    try:
        if type(fields) is PackedFields:
            decoded = HEADER_CODECS[struct].from_packed(fields.packed)
        elif type(fields) is dict:
            decoded = msgspec.convert(fields, struct, strict=False)
        else:
            decoded = HEADER_CODECS[struct].from_json(fields)
    except _UNREADABLE:
        return _decode_loosely(command, struct)
    return decoded


def _decode_loosely(command: Command, struct: type[FieldsT]) -> FieldsT:
    """Decode field by field, for values that msgspec does not accept."""
    ext = command.loose()
    values: dict[str, Any] = {}
    for field in HEADER_CODECS[struct].fields:
        value = ext.get(field.wire_name)
        if value is None or (value in ("", "null") and field.kind is not str):
            if field.required:
                raise _broken(struct, field, "is missing" if value is None else f"is {value!r}")
            continue
        values[field.name] = _typed(struct, field, java_text(value))
    return struct(**values)


def _typed(struct: type, field: HeaderField, text: str) -> object:
    from roquet.wire.fastjson.coercion import integer_of, truth_of  # here: few headers need it

    if field.kind is str:
        return text
    if field.kind is bool:
        if (truth := truth_of(text)) is None:
            raise _broken(struct, field, f"is {text[:40]!r}, neither true nor false")
        return truth
    if (number := integer_of(text)) is None:
        raise _broken(struct, field, f"is {text[:40]!r}, not a whole number")
    try:
        return msgspec.convert(number, field.annotation)
    except msgspec.ValidationError as error:
        raise _broken(struct, field, f"is {text}, beyond its limits: {error}") from error


def _broken(struct: type, field: HeaderField, what: str) -> FieldError:
    code = getattr(struct, "code", None)
    call = f"{struct.__name__} ({code:d})" if isinstance(code, RequestCode) else struct.__name__
    ours = "" if field.name == field.wire_name else f" ({field.name})"
    return FieldError(f"{call}: field {field.wire_name}{ours} {what}")
