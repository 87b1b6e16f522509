"""Shape: how the fields of a call or reply travel, found out once for each class."""

from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from roquet.wire.call import NOT_FIELDS


class Field(msgspec.Struct, frozen=True, kw_only=True):
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


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the codec needs to know of a class."""

    fields: tuple[Field, ...]
    to_json: Callable[[Any], bytes]
    """The inside of the JSON object that holds the fields of a value, each as a string."""
    from_json: Callable[[Any], Any]
    """The value of a JSON object whose values are typed well, or are texts of such values."""


class _Shapes(dict[type, Shape]):
    def __missing__(self, struct: type) -> Shape:
        fields = tuple(_fields(struct))
        self[struct] = shape = Shape(
            fields=fields,
            to_json=_writer(fields),
            from_json=msgspec.json.Decoder(struct, strict=False).decode,
        )
        return shape


SHAPES: Final = _Shapes()
"""The shape of every class that was asked for."""


def _fields(struct: Any) -> Iterable[Field]:
    for field in msgspec.structs.fields(struct):
        if field.name not in NOT_FIELDS:
            yield Field(
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


def _writer(fields: Iterable[Field]) -> Callable[[Any], bytes]:
    """A function made as one expression.

    It takes a third of the time of a loop over the fields, and every message sent and every reply
    goes this way. Only names of our own classes get into it.
    """
    parts = [_printed([field for field in fields if not field.optional])]
    parts += [
        f"(b'' if v.{field.name} is None else {_printed([field])})"
        for field in fields
        if field.optional
    ]
    source = f"lambda v: ({' + '.join(parts)})[1:]"
    made: Callable[[Any], bytes] = eval(source, {"quoted": msgspec.json.Encoder().encode})
    return made


def _printed(fields: Iterable[Field]) -> str:
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
