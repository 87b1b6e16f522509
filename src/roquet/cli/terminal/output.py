"""Output: everything that commands print, as text or as JSON, and their questions.

Names, keys, bodies and remarks are untrusted text. In text output every character is escaped that a
terminal would obey (`model.text`); JSON keeps every value and escapes the same characters.
"""

import base64
import codecs
import io
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.terminal.exit_codes import FAILED
from roquet.model.errors import ConfigError, RoquetError, UsageError
from roquet.model.moments import FORMS, parse_moment
from roquet.model.printable_text import json_escape, json_printable, printable, without_surrogates
from roquet.model.printable_text import quantity as quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Table
    from rich.text import Text

    from roquet.client.reading.message import InboundMessage
    from roquet.model.message import StoredMessage

    Stored = StoredMessage | InboundMessage

ESCAPING: Final = "roquet.escape"
"""Name of the error handler of stdout and stderr."""

_BLANKS: Final = str.maketrans("\n\r\t", "   ")

PIPE_WIDTH: Final = 1_000
"""Columns of a pipe or a file: tables take as many as they need."""

EDGE_HINT: Final = "neither first nor last, "
"""Begins the error text of an option that takes first, last or a time."""

DRY_RUN_NOTE: Final = "nothing was changed (--dry-run)"

JsonOption = Annotated[bool, typer.Option("--json", help="JSON, with everything that is known.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def accept_any_text() -> None:
    r"""Let stdout and stderr take any text: what their encoding lacks is written as `\u20ac`.

    Terminals and pipes may be ASCII or Latin-1 (LANG, PYTHONIOENCODING), and no encoding has half
    an emoji, which clients may send. JSON is equal with such escapes.
    """
    codecs.register_error(ESCAPING, _escape_lacking)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPING)


def _escape_lacking(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(json_escape, error.object[error.start : error.end])), error.end


def write_line(line: str, *, err: bool = False) -> None:
    """Print a line as it is: what is untrusted in it is escaped already."""
    # Not `typer.echo`, which writes UTF-8 where the stream is ASCII.
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{line}\n")
    stream.flush()


def echo(line: object = "", *, err: bool = False) -> None:
    """Print one line; line breaks are escaped, so that no message looks like roquet's output."""
    write_line(printable(str(line)), err=err)


def echo_errors(lines: Iterable[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        echo(line, err=True)


def echo_lines(text: str, *, indent: str = "") -> None:
    """Print several lines; `indent` marks untrusted ones."""
    for line in text.replace("\r\n", "\n").split("\n"):
        write_line(indent + printable(line, keep="\t"))


def echo_raw(data: bytes) -> None:
    """Print bytes unescaped, for files and programs: only where the user asked for that."""
    typer.echo(data)


def rewrite_line(line: str) -> None:
    """Replace the last line of a terminal; an empty text erases it."""
    typer.echo(f"\r\x1b[K{printable(line)}", nl=False, err=True)


def echo_json(values: Iterable[Any]) -> None:
    """Print each value as one line of JSON."""
    for value in values:
        write_line(json_text(value))


def json_text(value: Any, *, pretty: bool = False) -> str:
    """A value as JSON, with control characters escaped; lone surrogates become U+FFFD."""
    import msgspec

    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(without_surrogates(msgspec.to_builtins(value)))
    return json_printable((msgspec.json.format(data) if pretty else data).decode())


def table(
    columns: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: int | None = None
) -> "Table":
    """A table without borders; columns from index `numbers` on are aligned right.

    Integers have thousands separators, None is a dash, and texts of rich stay as they are.
    """
    from rich.table import Table

    result = Table(box=None, pad_edge=False, header_style="dim")
    for index, column in enumerate(columns):
        right = numbers is not None and index >= numbers
        result.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        result.add_row(*map(_cell, row))
    return result


def _cell(value: Any) -> "str | Text":
    if isinstance(value, Integral):  # numpy's, too
        return f"{value:,}"
    return "-" if value is None else value


def styled_text(text: str, style: str = "") -> "Text":
    """Escaped text in a rich style."""
    from rich.text import Text

    return Text(printable(text), style=style)


def console(*, to_stderr: bool = False, quiet: bool = False) -> "Console":
    """The console for tables and bars; colours on a terminal alone.

    Strings are printed without markup, and escaped. In a pipe or a file no value is wrapped.
    """
    from roquet.cli.terminal.printable_console import PrintableConsole

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return PrintableConsole(stderr=to_stderr, quiet=quiet, width=width)


CALENDAR_END_MS: Final = 253_402_214_400_000
"""The last day of the year 9999, in any zone: `datetime` ends there."""


def known_quantity(count: int | None, noun: str) -> str:
    """A count with its noun, or that it is not known."""
    return f"{noun}s not known" if count is None else quantity(count, noun)


def time_text(time_ms: int | None) -> str:
    """A time in ms since the epoch as text, in this machine's zone.

    A dash for none, and for times that no calendar has, as clients may send.
    """
    if not time_ms or not 0 < time_ms < CALENDAR_END_MS:
        return "-"
    return f"{datetime.fromtimestamp(time_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"


def parse_time_ms(text: str, option: str, words: str = "") -> int:
    """The time of an option, in ms since the epoch.

    `words` go into the error text, for options that take more than times.
    """
    try:
        return parse_moment(text, option, forms=words + FORMS)
    except ConfigError as error:
        raise UsageError(str(error)) from None


async def confirm(question: str, *, yes: bool, to_stderr: bool = False) -> None:
    """Ask the user whether to go on, unless --yes was given.

    `to_stderr` asks on stderr, where stdout holds JSON. A no, or the end of the input, ends the
    command with code 1. Ctrl-C works meanwhile: nothing waits for the thread that reads.
    """
    if yes:
        return
    from roquet.client.connection.threads import run_in_thread

    ask = partial(typer.confirm, printable(question), default=False, err=to_stderr)
    try:
        is_wanted = await run_in_thread(ask, "roquet-question")
    except typer.Abort:
        echo(err=True)
        raise RoquetError("nothing was done: no answer on stdin; --yes does not ask") from None
    if not is_wanted:
        echo("nothing was done", err=True)
        raise typer.Exit(FAILED)


def show_preview(lines: Iterable[str], *, dry_run: bool, json: bool) -> None:
    """Print what would be done, before the question; on stderr where stdout holds JSON."""
    for line in lines:
        echo(line, err=json)
    if dry_run:
        echo(DRY_RUN_NOTE, err=json)


def message_fields(message: "Stored") -> dict[str, Any]:
    """A message's fields for JSON: the body as text if it is UTF-8, else as base64."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": message.keys,
        "reconsume_times": message.reconsume_times,
        "born_ms": message.born_ms,
        "stored_ms": message.stored_ms,
        "properties": dict(message.properties),
    }
    if note := getattr(message, "body_note", ""):
        fields["body_note"] = note
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(message.body).decode()
    return fields


def one_line(body: bytes | str, longest: int) -> str:
    """A body or another text as one line, cut to `longest` characters."""
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    shown = printable(text[: longest + 1].translate(_BLANKS))
    return f"{shown[: longest - 1]}…" if len(shown) > longest else shown
