"""Log lines: text or JSON, in which control characters of values that clients sent are escaped.

2026-01-31 12:00:00,000 WARNING roquet.net: 10.0.0.7:5123: connection dropped: …
{"time": "2026-01-31T12:00:00.000Z", "level": "WARNING", "logger": "roquet.net", "message": …,
"event": "%s: connection dropped: %s", "client": "10.0.0.7:5123"}

Clients can cause lines: `LineFilter` bounds how many are written, the formatters how long they are.
"""

import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, TypeAlias

from roquet.log_records import escape_arguments, indent_continuation_lines
from roquet.model.printable_text import json_printable
from roquet.rules.line_limit import LineLimit

_ErrorInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

FIELDS: Final = ("client", "request", "topic", "group", "audit", "left_out")
"""Values that a log call may add by `extra`, each a field of the JSON form: the client's HOST:PORT,
the request's code, and names; whether it is an entry of `AUDIT`; and the number of lines of the
same place that `LineFilter` left out before it."""

AUDIT: Final[Mapping[str, object]] = {"audit": True}
"""`extra` of a line that says who changed who may do what: none of these is ever left out."""

MESSAGE_LENGTH_MAX: Final = 4_096
"""Characters of a message in the log: names and remarks of a request may have megabytes."""

TRACE_LENGTH_MAX: Final = 32_768
"""Characters of a traceback in the log."""


class LineFilter(logging.Filter):
    """Leaves out lines of a handler when one place in the code writes too many of them.

    A line that is written says by `left_out` how many were left out before it. DEBUG lines are
    written only where an operator asked for them, and then all of them are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = LineLimit()
        self._lock = threading.Lock()
        """Handlers call their filters before they take their own lock, in any thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        if record.levelno < logging.INFO or vars(record).get("audit"):
            return True
        place, now_ms = (record.name, record.lineno, record.levelno), int(record.created * 1_000)
        with self._lock:
            left_out = self._limit.left_out_before(place, now_ms)
        if left_out:
            record.left_out = left_out
        return left_out is not None


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

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Fill the layout with a message that is cut if it is long."""
        record.message = cut(record.message, MESSAGE_LENGTH_MAX)
        if left_out := vars(record).get("left_out"):
            record.message += f" ({left_out:,} lines like this one were left out before it)"
        return super().formatMessage(record)

    def formatException(self, ei: _ErrorInfo) -> str:  # noqa: N802 - logging's name
        """Format a traceback that is cut if it is long."""
        return cut(super().formatException(ei), TRACE_LENGTH_MAX)


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
            "message": cut(record.getMessage(), MESSAGE_LENGTH_MAX),
            "event": cut(str(record.msg), MESSAGE_LENGTH_MAX),
        }
        line |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[0]:
            trace = record.exc_text or self.formatException(record.exc_info)
            line["trace"] = cut(trace, TRACE_LENGTH_MAX)
        return json_printable(json.dumps(line, ensure_ascii=False, default=str))


def cut(text: str, length_max: int) -> str:
    """A text without its middle if it is too long: an error's reason is at its end."""
    left_out = len(text) - length_max
    if left_out <= 0:
        return text
    half = length_max // 2
    return f"{text[:half]} […{left_out:,} characters…] {text[-half:]}"
