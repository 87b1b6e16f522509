r"""Message format: a message as a line of one's own, as '{topic} {offset} {body}'.

    {topic} {broker} {queue} {offset} {message_id} {tag} {keys} {body} {size} {born_ms} {stored_ms}
    {reconsume_times} {properties} {properties[NAME]}

Names are those of --json; `size` is the number of bytes of the body. What a message does not have
is empty. A field may have a format of Python's behind a colon, as {offset:>10}. \t, \n and \\ are
a tab, a line break and a backslash; {{ and }} are braces.
"""

import re
from collections.abc import Callable, Mapping
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.cli.terminal.output import json_text
from roquet.model.errors import UsageError
from roquet.model.printable_text import printable
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from roquet.cli.terminal.output import Stored

LINE_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a body that are shown as a line: one of 60 MB takes minutes and gigabytes to escape."""

FIELDS: Final[Mapping[str, "Callable[[Stored], str | int]"]] = MappingProxyType(
    {
        "topic": lambda message: message.topic,
        "broker": lambda message: message.broker_name,
        "queue": lambda message: message.queue_id,
        "offset": lambda message: message.queue_offset,
        "message_id": lambda message: message.message_id,
        "tag": lambda message: message.tag or "",
        "keys": lambda message: " ".join(message.keys),
        "body": lambda message: message.body[:LINE_SIZE_MAX].decode("utf-8", "replace"),
        "size": lambda message: len(message.body),
        "born_ms": lambda message: message.born_ms,
        "stored_ms": lambda message: message.stored_ms,
        "reconsume_times": lambda message: message.reconsume_times,
        "properties": lambda message: json_text(dict(message.properties)),
    }
)

_PROPERTY: Final = re.compile(r"properties\[(.+)\]")
_ESCAPE: Final = re.compile(r"\\([tn\\])")
_ESCAPES: Final = {"t": "\t", "n": "\n", "\\": "\\"}


_NUMBERS: Final = frozenset({"queue", "offset", "size", "born_ms", "stored_ms", "reconsume_times"})


class MessageFormat:
    """A format, parsed once. Raises UsageError for one that cannot be used."""

    def __init__(self, text: str) -> None:
        try:
            self._parts = [_part(*part) for part in Formatter().parse(text)]
        except (ValueError, OverflowError, MemoryError) as error:
            raise UsageError(f"--format {text!r}: {error}") from None
        if not any(part.read for part in self._parts):
            raise UsageError(f"--format {text!r} has no field, as '{{topic}} {{offset}} {{body}}'")

    def line(self, message: "Stored") -> str:
        """A message by this format, escaped as all untrusted text, without a line break."""
        return "".join(part.literal + part.value(message) for part in self._parts)


class _Part(NamedTuple):
    """A literal, and the field behind it; None at the end."""

    literal: str
    read: "Callable[[Stored], str | int] | None" = None
    form: str = ""

    def value(self, message: "Stored") -> str:
        """The field's value."""
        if self.read is None:
            return ""
        value = self.read(message)
        return format(printable(value) if isinstance(value, str) else value, self.form)


def _part(literal: str, field: str | None, form: str | None, conversion: str | None) -> _Part:
    text = _ESCAPE.sub(lambda escape: _ESCAPES[escape[1]], literal)
    if field is None:
        return _Part(text)
    read = _reader(field)
    format(2**63 - 1 if field in _NUMBERS else "", form or "")  # raises an error for a wrong one
    if conversion is not None:
        raise ValueError(f"!{conversion} means nothing here")
    return _Part(text, read, form or "")


def _reader(field: str) -> "Callable[[Stored], str | int]":
    if field in FIELDS:
        return FIELDS[field]
    if named := _PROPERTY.fullmatch(field):
        return lambda message: message.properties.get(named[1], "")
    hint = suggest(field, FIELDS) or f"; there are {', '.join(FIELDS)} and properties[NAME]"
    raise UsageError(f"--format: there is no field {field!r}{hint}")
