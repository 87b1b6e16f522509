"""Dead-letter reason: why a message was given up, as a property and a line of a log hold it."""

from typing import Final

from roquet.model.errors import ConfigError, UsageError
from roquet.model.printable_text import printable

REASON_SIZE_MAX: Final = 1_000
"""Bytes of a reason: it shares 32 KiB with all other properties of its message."""

KIND_LENGTH_MAX: Final = 60
"""Characters of a kind, by which reasons are counted."""

NOT_OF_THE_MESSAGE: Final = (
    ConnectionError, TimeoutError, MemoryError, ImportError, ConfigError, UsageError,
)  # fmt: skip
"""Errors of a decoder that another time, or another member, may not meet: a schema registry cannot
be reached, a package is missing. OSError is not among them, as gzip and bz2 raise it for bad data.
"""


def is_of_the_message(error: BaseException) -> bool:
    """Whether a decoder's error says that the body can never be decoded."""
    return not isinstance(error, NOT_OF_THE_MESSAGE)


def reason_text(text: str) -> str:
    """A reason on one line, without characters that do not print, and cut to its limit."""
    lines = text[:REASON_SIZE_MAX].splitlines()
    line = printable("; ".join([stripped for one in lines if (stripped := one.strip())]))
    return line.encode()[:REASON_SIZE_MAX].decode(errors="ignore").rstrip()


def error_reason(error: BaseException) -> str:
    """An error as a reason: the name of its type, and its text if it has one."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = ""
    return reason_text(f"{name}: {text}" if text else name)


def reason_kind(reason: str) -> str:
    """The part of a reason that others share: an error's type, or a short text as a whole."""
    return reason.partition(":")[0][:KIND_LENGTH_MAX]
