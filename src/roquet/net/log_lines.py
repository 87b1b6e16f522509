"""Log lines: a formatter by which no stranger's text begins a line or commands a terminal."""

import logging
from typing import Final

from roquet.log_records import escape_arguments, indent_continuation_lines

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class PrintableFormatter(logging.Formatter):
    """The format of our servers' logs, for records of other packages, too.

    Names, addresses and remarks come from clients. In the values of a log call every line break and
    control character is an escape; further lines, of our own texts and of tracebacks, are indented.
    """

    def __init__(self, layout: str = FORMAT) -> None:
        super().__init__(layout)

    def format(self, record: logging.LogRecord) -> str:
        """One record: a line at the margin, and further ones that are not."""
        given, trace = record.args, record.exc_text
        record.args, record.exc_text = escape_arguments(given), None
        try:
            text = super().format(record)
        finally:
            record.args, record.exc_text = given, trace
        return indent_continuation_lines(text)
