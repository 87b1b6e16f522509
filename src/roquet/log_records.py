"""Log records of the package's loggers, with control characters in foreign text escaped.

Names, addresses and remarks come from anybody who can reach a server, and applications install
handlers of their own. So text is escaped where the record is made, before any handler sees it.
"""

import logging
from typing import Final, TypeAlias

from roquet.model.printable_text import printable

LogArguments: TypeAlias = tuple[object, ...] | dict[str, object] | None

_INDENT: Final = "    "

_format_exception: Final = logging.Formatter().formatException


def logger(name: str) -> logging.Logger:
    """Return a logger of the package, whose records are escaped; each module has its own."""
    package_logger = logging.getLogger(name)
    package_logger.addFilter(escape_record)  # logging adds a filter only once
    return package_logger


def escape_record(record: logging.LogRecord) -> bool:
    """Escape the foreign parts of a record: its arguments and the text of its traceback.

    A logging filter that accepts every record. The format string is ours and stays as it is, so
    records of one kind can be grouped by it; without arguments it may be foreign text and is
    escaped, too.
    """
    record.args = escape_arguments(record.args)
    if not record.args:
        record.msg = escape_value(record.msg)
    if record.exc_info and record.exc_info[0] and not record.exc_text:
        record.exc_text = indent_continuation_lines(_format_exception(record.exc_info))
    return True


def escape_arguments(arguments: object) -> LogArguments:
    """Wrap the arguments of a log call so that their text is escaped when it is formatted."""
    if isinstance(arguments, dict):
        return {name: escape_value(value) for name, value in arguments.items()}
    if isinstance(arguments, tuple):
        return tuple(escape_value(value) for value in arguments)
    return None


def escape_value(value: object) -> object:
    """Return the value itself if its text is safe to log, else a wrapper that escapes the text."""
    is_safe = isinstance(value, int | float) or (isinstance(value, str) and value.isprintable())
    return value if is_safe or isinstance(value, _EscapedValue) else _EscapedValue(value)


def indent_continuation_lines(text: str) -> str:
    """Escape a text and indent every line but the first, so that none passes for a log line."""
    first, *rest = text.split("\n")
    return "\n".join([printable(first), *(_INDENT + printable(line) for line in rest)])


class _EscapedValue:
    """Argument of a log call whose text is escaped."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(str(self._value))

    def __repr__(self) -> str:
        return printable(repr(self._value))
