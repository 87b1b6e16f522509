"""HeaderCodec: encoder and decoder of a call's or reply's fields, derived once for each class."""

from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from roquet.wire.call import NOT_FIELDS


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
