"""Plain options: texts, numbers, paths, choices and switches converted without pydantic.

Typer converts the value of every option with pydantic, whose import costs 10 MB of memory and a
tenth of a second. A server keeps that memory for as long as it runs.
"""

from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from typer.core import TyperOption

_KINDS: Final = {
    str: "a text",
    int: "a whole number",
    bool: "a switch",
    Path: "a path",
}


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
