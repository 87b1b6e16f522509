"""Type coercion of plain values, as tolerant as Java peers need.

Numbers may be strings and strings numbers, an enum is given by name in any case or by its index in
Java's order, null stands for an empty list or a default, and unknown fields are ignored.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from roquet.model.errors import FieldError
from roquet.wire.fastjson.parser import Pairs

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_TRUTHS: Final = MappingProxyType({"true": True, "1": True, "false": False, "0": False})


def integer_of(text: str) -> int | None:
    """Whole number of a text with up to 19 digits; None for any other text."""
    return int(text) if _INTEGER.fullmatch(text) else None


def truth_of(text: str) -> bool | None:
    """Truth value of true, false, 1 or 0 in any case; None for any other text."""
    return _TRUTHS.get(text.lower())


def coerce(value: object, wanted: Any, path: str = "$") -> Any:
    """Convert a value to a type; FieldError names the path where that fails."""
    if (make := _SCALARS.get(wanted)) is not None:
        return make(value, path)
    origin = get_origin(wanted)
    if (build := _BUILDERS.get(origin)) is not None:
        return build(value, wanted, path)
    if issubclass(wanted, Enum):
        return _member(value, wanted, path)
    return _struct(value, wanted, path)


def _optional(value: object, wanted: Any, path: str) -> Any:
    (inner,) = (arg for arg in get_args(wanted) if arg is not NoneType)
    if value is None or (value == "" and inner is not str):
        return None
    return coerce(value, inner, path)


def _sequence(value: object, wanted: Any, path: str) -> Any:
    items, inner = _items(value, path), get_args(wanted)[0]
    make = get_origin(wanted)
    return make([coerce(item, inner, f"{path}[{n}]") for n, item in enumerate(items)])


def _mapping(value: object, wanted: Any, path: str) -> dict[Any, Any]:
    keys, values = get_args(wanted)
    return {
        coerce(key, keys, f"{path}.key"): coerce(item, values, f"{path}[{key!r}]")
        for key, item in ([] if value is None else _pairs(value, path))
    }


_fields: Final = cache(msgspec.structs.fields)
"""Fields of a struct; without the cache a list of many spends half of its time on them."""


def _struct(value: object, wanted: Any, path: str) -> Any:
    members = {key: item for key, item in _pairs(value, path) if isinstance(key, str)}
    values = {}
    for field in _fields(wanted):
        item = members.get(field.encode_name)
        member_path = f"{path}.{field.encode_name}"
        if item is not None:
            values[field.name] = coerce(item, field.type, member_path)
        elif field.required:
            if get_origin(field.type) not in {list, dict}:
                raise FieldError(f"{wanted.__name__}: {member_path} is missing")
            values[field.name] = coerce(None, field.type, member_path)
    return wanted(**values)


def _member(value: object, wanted: type[Enum], path: str) -> Enum:
    """Enum member. Java's ordinals count declarations; an IntEnum has numbers of its own."""
    members = list(wanted)
    text = str(value).strip()
    if text.isdecimal() and len(text) <= 10:
        number = int(text)
        if issubclass(wanted, IntEnum):
            members = [member for member in members if member.value == number]
            number = 0
        if number < len(members):
            return members[number]
    for member in members:
        if member.name == text.upper():
            return member
    raise _ill_typed(value, path, f"a {wanted.__name__}")


def _pairs(value: object, path: str) -> Iterable[tuple[object, object]]:
    if isinstance(value, Pairs):
        return value
    if isinstance(value, dict):
        return value.items()
    raise _ill_typed(value, path, "an object")


def _items(value: object, path: str) -> list[object]:
    if value is None:
        return []
    if isinstance(value, list) and not isinstance(value, Pairs):
        return value
    raise _ill_typed(value, path, "a list")


def _plain(value: object, path: str) -> object:
    if isinstance(value, Pairs):
        return {_text(key, path): _plain(item, path) for key, item in value}
    return [_plain(item, path) for item in value] if isinstance(value, list) else value


def _text(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise _ill_typed(value, path, "a text")


def _integer(value: object, path: str) -> int:
    text = value if isinstance(value, str) else _text(value, path)
    whole, _, fraction = text.partition(".")
    if fraction.strip("0") or (number := integer_of(whole)) is None:
        raise _ill_typed(value, path, "a whole number")
    return number


def _number(value: object, path: str) -> float:
    try:
        return float(_text(value, path))
    except ValueError:
        raise _ill_typed(value, path, "a number") from None


def _truth(value: object, path: str) -> bool:
    if (truth := truth_of(_text(value, path))) is None:
        raise _ill_typed(value, path, "true or false")
    return truth


def _raw(value: object, path: str) -> bytes:
    try:
        return b64decode(_text(value, path), validate=True)
    except ValueError:
        raise _ill_typed(value, path, "base64") from None


_SCALARS: Final[Mapping[Any, Callable[[object, str], Any]]] = MappingProxyType(
    {
        str: _text,
        int: _integer,
        float: _number,
        bool: _truth,
        bytes: _raw,
        object: _plain,
        Any: _plain,
    }
)

_BUILDERS: Final[Mapping[Any, Callable[[object, Any, str], Any]]] = MappingProxyType(
    {
        Union: _optional,
        UnionType: _optional,
        dict: _mapping,
        list: _sequence,
        set: _sequence,
        frozenset: _sequence,
        tuple: _sequence,
    }
)


def _ill_typed(value: object, path: str, wanted: str) -> FieldError:
    return FieldError(f"{path} is {repr(value)[:40]}, not {wanted}")
