"""Log lines: a formatter by which no stranger's text begins a line or commands a terminal."""

import logging
from typing import Final

from roquet.model.text import printable

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_INDENT: Final = "    "


class PrintableFormatter(logging.Formatter):
    """The format of our servers' logs.

    Names, addresses and remarks come from clients. In the values of a log call every line break and
    control character is an escape; further lines, of our own texts and of tracebacks, are indented.
    """

    def __init__(self, layout: str = FORMAT) -> None:
        super().__init__(layout)

    def format(self, record: logging.LogRecord) -> str:
        """One record: a line at the margin, and further ones that are not."""
        given = record.args
        record.args = _wrapped(given)
        try:
            text = super().format(record)
        finally:
            record.args = given
        first, *rest = text.split("\n")
        return "\n".join([printable(first), *(_INDENT + printable(line) for line in rest)])


class _Shown:
    """A value of a log call whose text is escaped."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(str(self._value))

    def __repr__(self) -> str:
        return printable(repr(self._value))


def _wrapped(given: object) -> tuple[object, ...] | dict[str, object] | None:
    if isinstance(given, dict):
        return {name: _shown(value) for name, value in given.items()}
    return tuple(_shown(value) for value in given) if isinstance(given, tuple) else None


def _shown(value: object) -> object:
    return value if isinstance(value, int | float) else _Shown(value)
