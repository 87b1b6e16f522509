"""Checks of frozen settings: unknown names, values of a wrong type, numbers that are too small."""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

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
"""Values of a kind may as well be of another."""

_GENERIC_TYPES: Final = (tuple, Mapping)


class ConfigMeta(msgspec.StructMeta):
    """The type of settings, which says what is wrong with a name that they do not have."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Make settings; ConfigError for an unknown name."""
        known = self.__struct_fields__
        for name in named:
            if name not in known:
                raise ConfigError(
                    f"{name}: {self.__name__} has no such setting{suggest(name, known)}"
                )
        return super().__call__(*args, **named)


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True, metaclass=ConfigMeta):
    """Settings that raise ConfigError for an unknown name or a value of a wrong type."""

    def __post_init__(self) -> None:
        check_types(self)


def check_types(config: msgspec.Struct) -> None:
    """ConfigError for a value whose type its setting does not take."""
    for name, kinds in _setting_types(type(config)).items():
        value = getattr(config, name)
        taken = (*kinds, *(_ALSO_ACCEPTED[kind] for kind in kinds if kind in _ALSO_ACCEPTED))
        if isinstance(value, taken) and (type(value) is not bool or bool in kinds):
            continue
        raise ConfigError(f"{name}: {value!r} is not {_types_text(kinds)}")


def check_least(config: msgspec.Struct, least: Mapping[str, int]) -> None:
    """ConfigError for a number that is smaller than it may be; None is no number."""
    for name, lowest in least.items():
        value = getattr(config, name)
        if value is not None and value < lowest:
            raise ConfigError(f"{name}: {value} is less than {lowest}")


@cache
def _setting_types(config: type[msgspec.Struct]) -> Mapping[str, tuple[type, ...]]:
    """The classes of each setting's values; protocols, functions and the like are left out."""
    found = {}
    for field in msgspec.structs.fields(config):
        kind = field.type
        union = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
        plain = [get_origin(one) if get_origin(one) in _GENERIC_TYPES else one for one in union]
        if all(isinstance(one, type) and not getattr(one, "_is_protocol", False) for one in plain):
            found[field.name] = tuple(plain)
    return found


def _types_text(kinds: tuple[type, ...]) -> str:
    return " or ".join(_type_text(kind) for kind in kinds)


def _type_text(kind: type) -> str:
    if issubclass(kind, Enum):
        return f"one of {', '.join(f'{kind.__name__}.{one}' for one in kind.__members__)}"
    return _TYPE_TEXTS.get(kind, f"a {kind.__name__}")
