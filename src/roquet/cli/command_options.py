"""Options and arguments of commands, declared as parameters of a function or as fields of a class.

async def show(admin: "AdminClient", *, system: bool = option("System topics, too.")) -> Result

A switch such as `--system` has no opposite. Without `default` a switch is off, a type that allows
None is None, and anything else is required.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, get_args

import msgspec
import typer
from typer.core import TyperOption

_BY_TYPE: Final = object()


class As(NamedTuple):
    """The field of a struct that an option gives, and how its value is made."""

    field: str
    convert: Callable[[Any], Any] = lambda value: value


class Declaration(NamedTuple):
    """An option or an argument, apart from its name and type."""

    make: Callable[..., Any]
    names: tuple[str, ...]
    default: Any
    gives: As | None
    settings: dict[str, Any]


def option(
    text: str, *names: str, default: Any = _BY_TYPE, gives: As | None = None, **settings: Any
) -> Any:
    """Declare an option with its help text; further settings are typer's.

    Names of one letter are added to that of the parameter, others replace it. `gives` is the field
    of a struct with its value; None is the one of the same name.
    """
    return Declaration(typer.Option, names, default, gives, {"help": text, **settings})


def argument(
    text: str, *, default: Any = _BY_TYPE, gives: As | None = None, **settings: Any
) -> Any:
    """Declare an argument with its help text; further settings are typer's."""
    return Declaration(typer.Argument, (), default, gives, {"help": text, **settings})


def declared(parameter: Parameter) -> Parameter:
    """A parameter as typer takes it: what was declared becomes an annotation and a default."""
    declaration, kind = parameter.default, parameter.annotation
    if not isinstance(declaration, Declaration):
        return parameter
    names, default = declaration.names, declaration.default
    is_short = all(len(one) == len("-x") for one in names)
    if declaration.make is typer.Option and is_short and (names or kind is bool):
        names = (f"--{parameter.name.replace('_', '-')}", *names)
    if default is _BY_TYPE:
        is_optional = type(None) in get_args(kind)
        default = False if kind is bool else None if is_optional else Parameter.empty
    made = declaration.make(*names, **declaration.settings)
    return parameter.replace(annotation=Annotated[kind, made, declaration.gives], default=default)


class CommandOptions:
    """Options of a command as one value: its fields are declared like parameters of a function.

    Those of a derived class come before those of its bases.
    """

    _own: ClassVar[dict[str, Parameter]] = {}

    def __init_subclass__(cls) -> None:
        cls._own = {}
        for name, kind in vars(cls).get("__annotations__", {}).items():
            default = getattr(cls, name, Parameter.empty)
            field = Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            cls._own[name] = declared(field)
            setattr(cls, name, cls._own[name].default)

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def fields_of(
        self, struct: type[msgspec.Struct], absent: Sequence[object] = (None,)
    ) -> dict[str, Any]:
        """The fields of a struct that options give; a value in `absent` gives none."""
        fields: dict[str, Any] = {}
        for one in self.declared():
            value, target = getattr(self, one.name), one.annotation.__metadata__[-1]
            field, convert = target if isinstance(target, As) else As(one.name)
            if field in struct.__struct_fields__ and value not in absent:
                fields[field] = convert(value)
        return fields

    @classmethod
    def declared(cls) -> list[Parameter]:
        """The options, in the order of the help; one that is declared anew keeps its place."""
        found: dict[str, Parameter] = {}
        for own in (vars(one).get("_own", {}) for one in reversed(cls.__mro__)):
            new = {name: one for name, one in own.items() if name not in found}
            found = {**new, **found, **own}
        return list(found.values())


_KINDS: Final = {str: "a text", int: "a whole number", bool: "a switch", Path: "a path"}


class PlainConversion(msgspec.Struct, frozen=True):
    """Conversion of one option's value, in the place of typer's."""

    kind: type

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as its option's type; None stays None. Raises BadParameter."""
        if value is None or isinstance(value, self.kind):
            return value
        try:
            return self.kind(value)
        except (TypeError, ValueError):
            text = f"{value!r} is not {self._wanted()}"
            raise typer.BadParameter(text, ctx=ctx, param=param) from None

    def _wanted(self) -> str:
        if issubclass(self.kind, Enum):
            return f"one of {', '.join(repr(choice.value) for choice in self.kind)}"
        return _KINDS[self.kind]


def convert_plainly(command: Any, context: Any) -> None:
    """Convert the options of a command that have plain types without pydantic."""
    for option in command.get_params(context):  # with --help
        if isinstance(option, TyperOption) and _is_plain(option.type_descriptor):
            conversion = PlainConversion(option.type_descriptor.annotation)
            vars(option)["get_runtime_param"] = lambda conversion=conversion: conversion


def _is_plain(kind: Any) -> bool:
    """Whether a value of a type needs no check of its own, such as bounds or a file's existence."""
    info = kind.parameter_info
    if kind.is_choice:
        return issubclass(kind.annotation, Enum) and info.case_sensitive
    is_checked = kind.is_ranged or getattr(info, "exists", False)
    return kind.annotation in _KINDS and not is_checked
