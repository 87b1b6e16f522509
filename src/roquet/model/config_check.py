"""Checks of frozen settings: unknown names, values of a wrong type, numbers below their minimum."""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import suggest

_TYPE_TEXTS: Final[Mapping[type, str]] = {
    int: "a whole number",
    bool: "True or False",
    str: "a text",
    NoneType: "None",
    float: "a number",
    tuple: "a tuple",
    Mapping: "a mapping",
}

_ALSO_ACCEPTED: Final[Mapping[type, type]] = {float: int, tuple: list}
"""Other types accepted for a setting of a type."""

_GENERIC_TYPES: Final = (tuple, Mapping)


T = TypeVar("T")


class ConfigMeta(msgspec.StructMeta):
    """Metaclass of settings that reports unknown setting names with a suggestion."""

    # Returns an instance of the class: otherwise type checkers would not look at its fields.
    def __call__(self: type[T], *args: Any, **named: Any) -> T:
        """Create settings; raises ConfigError for an unknown name."""
        config = cast("Any", self)
        known = config.__struct_fields__
        for name in named:
            if name not in known:
                raise ConfigError(
                    f"{name}: {self.__name__} has no such setting{suggest(name, known)}"
                )
        return cast("T", msgspec.StructMeta.__call__(config, *args, **named))


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True, metaclass=ConfigMeta):
    """Settings that raise ConfigError for an unknown name or a value of a wrong type."""

    def __post_init__(self) -> None:
        check_types(self)


def check_types(config: msgspec.Struct) -> None:
    """Raise ConfigError for a value whose type its setting does not accept."""
    for name, kinds in _setting_types(type(config)).items():
        value = getattr(config, name)
        taken = (*kinds, *(_ALSO_ACCEPTED[kind] for kind in kinds if kind in _ALSO_ACCEPTED))
        if isinstance(value, taken) and (type(value) is not bool or bool in kinds):
            continue
        wanted = " or ".join(map(_type_text, kinds))
        raise ConfigError(f"{name}: {value!r} is not {wanted}")


def check_least(config: msgspec.Struct, minimums: Mapping[str, int]) -> None:
    """Raise ConfigError for a number below its minimum; None is not checked."""
    for name, minimum in minimums.items():
        value = getattr(config, name)
        if value is not None and value < minimum:
            raise ConfigError(f"{name}: {value} is less than {minimum}")


@cache
def _setting_types(config: type[msgspec.Struct]) -> Mapping[str, tuple[type, ...]]:
    """Types of each setting's values; settings typed by protocols or functions are left out."""
    types: dict[str, tuple[type, ...]] = {}
    for field in msgspec.structs.fields(config):
        hint = field.type.__origin__ if get_origin(field.type) is Annotated else field.type
        union = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
        plain = [_checked_type(t) for t in union]
        if all(isinstance(t, type) and not getattr(t, "_is_protocol", False) for t in plain):
            types[field.name] = tuple(plain)
    return types


def _checked_type(hint: Any) -> Any:
    """The type that values of a hint are instances of: `tuple` of `tuple[int, ...]`."""
    origin = get_origin(hint)
    return origin if origin in _GENERIC_TYPES or hasattr(origin, "__fspath__") else hint


def _type_text(kind: type) -> str:
    if hasattr(kind, "__fspath__"):
        return "a Path"
    if issubclass(kind, Enum):
        return f"one of {', '.join(f'{kind.__name__}.{name}' for name in kind.__members__)}"
    return _TYPE_TEXTS.get(kind, f"a {kind.__name__}")
