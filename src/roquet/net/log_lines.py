"""Log lines: text or JSON, in which control characters of values that clients sent are escaped.

2026-01-31 12:00:00,000 WARNING roquet.net: 10.0.0.7:5123: connection dropped: …
{"time": "2026-01-31T12:00:00.000Z", "level": "WARNING", "logger": "roquet.net", "message": …,
"event": "%s: connection dropped: %s", "client": "10.0.0.7:5123"}
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from roquet.log_records import escape_arguments, indent_continuation_lines
from roquet.model.errors import FieldError
from roquet.model.printable_text import json_printable
from roquet.wire.command import Command

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


FIELDS: Final = ("client", "request", "topic", "group")
"""Values that a log call may add by `extra`, each a field of the JSON form: the client's HOST:PORT,
the request's code, and names."""

_TOPIC_KEYS: Final = ("topic", "b")
_GROUP_KEYS: Final = ("consumerGroup", "producerGroup", "group", "a")
"""Header fields of requests that name a topic or group; the short ones are those of sends."""

NAME_LENGTH_MAX: Final = 255
"""Characters of a name in a log line: no topic or group has more, but a stranger's header may."""


def request_fields(command: Command, client: str) -> Mapping[str, object]:
    """The fields of a log call that is about a request; a malformed header names nothing."""
    found: dict[str, object] = {"client": client, "request": command.code}
    try:
        header = command.ext
    except FieldError:
        return found
    for field, keys in (("topic", _TOPIC_KEYS), ("group", _GROUP_KEYS)):
        if (name := next((header[key] for key in keys if key in header), None)) is not None:
            found[field] = name[:NAME_LENGTH_MAX]
    return found


class PrintableFormatter(logging.Formatter):
    """The format of our servers' logs, for records of other packages, too.

    Names, addresses and remarks come from clients. In the values of a log call every line break and
    control character is escaped; further lines, of our own texts and of tracebacks, are indented.
    """

    def __init__(self, layout: str = FORMAT) -> None:
        super().__init__(layout)

    def format(self, record: logging.LogRecord) -> str:
        """Format a record: one line at the margin, further lines indented."""
        args, trace = record.args, record.exc_text
        record.args, record.exc_text = escape_arguments(args), None
        try:
            text = super().format(record)
        finally:
            record.args, record.exc_text = args, trace
        return indent_continuation_lines(text)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for collectors of logs.

    `event` is the text without its values: lines of one kind have it in common.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        made = datetime.fromtimestamp(record.created, tz=UTC)
        line: dict[str, object] = {
            "time": f"{made:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "event": str(record.msg),
        }
        line |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[0]:
            line["trace"] = record.exc_text or self.formatException(record.exc_info)
        return json_printable(json.dumps(line, ensure_ascii=False, default=str))
