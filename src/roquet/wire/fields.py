"""Fields of calls and replies: to the header's string map and back.

Every value is sent as a string. Received numbers and booleans may be unquoted, and an empty one
means absent (an empty text stays as it is); unknown fields are kept in `Command.ext`.
"""

from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec

from roquet.model.errors import FieldError
from roquet.wire.call import Call, Reply
from roquet.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, RequestCode, ResponseCode
from roquet.wire.command import JSON, PYTHON, Command, encode_json, java_text, json_pairs, sender
from roquet.wire.compact import PackedFields, encode_compact, write_pairs
from roquet.wire.fastjson.coercion import integer_of, truth_of
from roquet.wire.header_codec import HEADER_CODECS, HeaderCodec, HeaderField

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
    code, flag = int(call.code), FLAG_ONEWAY if oneway else 0
    return _encode(call, serialize_type, code, flag, opaque, (language, version), None, call.body)


def encode_reply(
    reply: Reply, command: Command, *, language: int = PYTHON, version: int = VERSION
) -> bytes:
    """Encode the whole frame of the response to `command`, in the format of the request."""
    return _encode(
        reply, command.serialize_type, reply.code, FLAG_RESPONSE, command.opaque,
        (language, version), reply.remark, reply.body,
    )  # fmt: skip


def _encode(  # noqa: PLR0913, PLR0917 - the parts of a frame
    value: AnyCall | Reply, serialize_type: int, code: int, flag: int, opaque: int,
    peer: tuple[int, int], remark: str | None, body: bytes,
) -> bytes:  # fmt: skip
    codec = HEADER_CODECS[type(value)]
    if serialize_type == JSON:
        pairs = _json_pairs(value, codec)
        return encode_json(code, flag, opaque, sender(*peer), remark, pairs, body)
    return encode_compact(code, flag, opaque, peer, remark, _compact_pairs(value, codec), body)


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
