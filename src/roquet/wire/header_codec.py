"""Shape: how the fields of a call or reply travel, found out once for each class."""

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
    """What travels as text: str, int or bool."""
    annotation: Any
    """The same with its limits."""
    optional: bool
    """Whether it may be None."""
    required: bool


class HeaderCodec(msgspec.Struct, frozen=True, kw_only=True):
    """What the codec needs to know of a class."""

    fields: tuple[HeaderField, ...]
    to_json: Callable[[Any], bytes]
    """The inside of the JSON object that holds the fields of a value, each as a string."""
    to_compact: Callable[[Any], bytes]
    """The pairs of the compact form; OverflowError when a text has 64 KiB or more."""
    from_json: Callable[[Any], Any]
    """The value of a JSON object whose values are typed well, or are texts of such values."""
    from_packed: Callable[[Any], Any]
    """The same of a MessagePack map."""


class _HeaderCodecs(dict[type, HeaderCodec]):
    def __missing__(self, struct: type) -> HeaderCodec:
        fields = tuple(_fields(struct))
        self[struct] = shape = HeaderCodec(
            fields=fields,
            to_json=_json_writer(fields),
            to_compact=_compact_writer(fields),
            from_json=msgspec.json.Decoder(struct, strict=False).decode,
            from_packed=msgspec.msgpack.Decoder(struct, strict=False).decode,
        )
        return shape


HEADER_CODECS: Final = _HeaderCodecs()
"""The shape of every class that was asked for."""


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
    raise TypeError(f"{annotation} cannot travel in a header")


# Writers are made as one expression each. It takes a third of the time of a loop over the fields,
# and every message sent and every reply goes this way. Only names of our own classes get into it.


def _json_writer(fields: Iterable[HeaderField]) -> Callable[[Any], bytes]:
    expression = _joined(fields, _json_text)
    if expression.startswith("b',"):  # the first field is always there, and has no comma
        return _compiled(expression.replace(",", "", 1))
    return _compiled(f"({expression})[1:]")


def _compact_writer(fields: Iterable[HeaderField]) -> Callable[[Any], bytes]:
    return _compiled(_joined(fields, _compact_text))


def _compiled(expression: str) -> Callable[[Any], bytes]:
    """A function of v."""
    names = {"quoted": msgspec.json.Encoder().encode}
    made: Callable[[Any], bytes] = eval(f"lambda v: {expression}", names)
    return made


def _joined(fields: Iterable[HeaderField], printed: Callable[[Iterable[HeaderField]], str]) -> str:
    """The expression that prints all of v; what may be None is left out when it is."""
    parts = [printed([field for field in fields if not field.optional])]
    parts += [
        f"(b'' if v.{field.name} is None else {printed([field])})"
        for field in fields
        if field.optional
    ]
    return " + ".join(parts)


def _json_text(fields: Iterable[HeaderField]) -> str:
    """The expression that prints these fields of v, a comma before each."""
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
    """The expression that prints these fields of v, each with the lengths of name and value."""
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
