"""Log lines: a formatter that escapes control characters in values that clients sent."""

import logging
from typing import Final

from roquet.log_records import escape_arguments, indent_continuation_lines

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


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
