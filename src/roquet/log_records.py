"""Log records: the package's loggers, whose records hold nothing that a handler would obey.

Names, addresses and remarks come from whoever can reach us, and applications install handlers of
their own. So text is escaped where a record is made, whatever becomes of it then.
"""

import logging
from typing import Final, TypeAlias

from roquet.model.printable_text import printable

LogArguments: TypeAlias = tuple[object, ...] | dict[str, object] | None

_INDENT: Final = "    "

_format_exception: Final = logging.Formatter().formatException


def logger(name: str) -> logging.Logger:
    """A logger of the package, whose records are escaped; each module has its own."""
    found = logging.getLogger(name)
    found.addFilter(escape_record)  # once, however often it is asked for
    return found


def escape_record(record: logging.LogRecord) -> bool:
    """Escape what a record holds of others: its values, and the text of its traceback.

    A filter that takes every record. The text of the call itself is ours and stays, so that
    records of one kind can be grouped by it; without values it may be a stranger's.
    """
    record.args = escape_arguments(record.args)
    if not record.args:
        record.msg = escape_value(record.msg)
    if record.exc_info and record.exc_info[0] and not record.exc_text:
        record.exc_text = indent_continuation_lines(_format_exception(record.exc_info))
    return True


def escape_arguments(given: object) -> LogArguments:
    """The values of a log call, each as one that is escaped when it is written."""
    if isinstance(given, dict):
        return {name: escape_value(value) for name, value in given.items()}
    return tuple(escape_value(value) for value in given) if isinstance(given, tuple) else None


def escape_value(value: object) -> object:
    """A value that is safe to be written: itself, or one whose text is escaped."""
    is_safe = isinstance(value, int | float) or (isinstance(value, str) and value.isprintable())
    return value if is_safe or isinstance(value, _EscapedValue) else _EscapedValue(value)


def indent_continuation_lines(text: str) -> str:
    """Text whose further lines cannot be taken for log lines."""
    first, *rest = text.split("\n")
    return "\n".join([printable(first), *(_INDENT + printable(line) for line in rest)])


class _EscapedValue:
    """A value of a log call whose text is escaped."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(str(self._value))

    def __repr__(self) -> str:
        return printable(repr(self._value))
