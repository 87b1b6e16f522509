"""Output: the one door for what commands print, for eyes or as JSON, and the question before.

Names, keys, bodies and remarks are strangers' text. For eyes everything is escaped that a terminal
would obey (`model.printable_text`); for programs JSON keeps every value, and escapes the same
characters.
"""

import base64
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.terminal.exit_codes import FAILED
from roquet.model.errors import RoquetError, UsageError
from roquet.model.printable_text import json_printable, printable, without_surrogates

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from roquet.client.reading.message import InboundMessage
    from roquet.model.message import StoredMessage

    Stored = StoredMessage | InboundMessage

_BLANKS: Final = str.maketrans("\n\r\t", "   ")

PIPE_WIDTH: Final = 1_000
"""Columns of what is no terminal; tables take as many as they need."""

DRY_RUN_NOTE: Final = "nothing was changed (--dry-run)"

JsonOption = Annotated[bool, typer.Option("--json", help="JSON, with everything that is known.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def echo(line: object = "", *, err: bool = False) -> None:
    """One line; line breaks in it are shown as escapes, so that nobody's text looks like ours."""
    typer.echo(printable(str(line)), err=err)


def echo_lines(text: str, *, indent: str = "") -> None:
    """Several lines, as they are broken; strangers' are indented, so that none looks like ours."""
    for line in text.replace("\r\n", "\n").split("\n"):
        typer.echo(indent + printable(line, keep="\t"))


def echo_raw(data: bytes) -> None:
    """Bytes as they are, for files and programs: only where the user has asked for that."""
    typer.echo(data)


def rewrite_line(line: str) -> None:
    """Put a line in the place of the last one, on a terminal; an empty one leaves nothing."""
    typer.echo(f"\r\x1b[K{printable(line)}", nl=False, err=True)


def echo_json(values: Iterable[Any]) -> None:
    """Each value as one line of JSON."""
    for value in values:
        typer.echo(json_text(value))


def json_text(value: Any, *, pretty: bool = False) -> str:
    """JSON in ASCII where a terminal would obey anything else; lone surrogates become U+FFFD."""
    import msgspec

    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(without_surrogates(msgspec.to_builtins(value)))
    return json_printable((msgspec.json.format(data) if pretty else data).decode())


def table(*columns: str, numbers: int | None = None) -> "Table":
    """A table without lines; columns from the place `numbers` on hold numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim")
    for place, column in enumerate(columns):
        right = numbers is not None and place >= numbers
        made.add_column(column, justify="right" if right else "left", overflow="fold")
    return made


def styled_text(text: str, style: str = "") -> "Text":
    """Text in a colour."""
    from rich.text import Text

    return Text(printable(text), style=style)


def console(*, to_stderr: bool = False, quiet: bool = False) -> "Console":
    """Where tables and bars go, `to_stderr` to stderr: colours on a terminal alone.

    Strings are printed as they are, without markup, and escaped. A pipe or a file has no edge, so
    no value is broken for it.
    """
    from roquet.cli.terminal.printable_console import PrintableConsole

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return PrintableConsole(stderr=to_stderr, quiet=quiet, width=width)


def time_text(time_ms: int | None) -> str:
    """A time for eyes, in this machine's zone; a dash for none."""
    if not time_ms or time_ms < 0:
        return "-"
    return f"{datetime.fromtimestamp(time_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"


def time_ms(text: str, option: str, words: str = "") -> int:
    """The time that an option gives, in ms since the epoch; `words` say what else it is not."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        return int(moment.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        times = "no time like 2026-01-31T12:00, and no ms since 1970"
        raise UsageError(f"{option}: {text!r} is {words}{times}") from None


async def confirm(question: str, *, yes: bool, to_stderr: bool = False) -> None:
    """Go on only if the user wants it; asked on the terminal unless said before.

    `to_stderr` asks on stderr: what is on stdout is JSON then. A no ends the command with code 1,
    so that scripts know that nothing was done, and so does an input that has ended. Ctrl-C is an
    answer, too: nothing waits for the thread that reads.
    """
    if yes:
        return
    from roquet.client.connection.threads import run_in_thread

    ask = partial(typer.confirm, printable(question), default=False, err=to_stderr)
    try:
        is_wanted = await run_in_thread(ask, "roquet-question")
    except typer.Abort:
        echo(err=True)
        raise RoquetError("nothing was done: nobody answers here; --yes does not ask") from None
    if not is_wanted:
        echo("nothing was done", err=True)
        raise typer.Exit(FAILED)


def show_preview(lines: Iterable[str], *, dry_run: bool, json: bool) -> None:
    """What would be done, before it is asked for; with JSON on stderr, which the eyes see, too."""
    for line in lines:
        echo(line, err=json)
    if dry_run:
        echo(DRY_RUN_NOTE, err=json)


def message_fields(message: "Stored") -> dict[str, Any]:
    """What JSON tells of a message: its body as text where it is one, else as base64."""
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
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(message.body).decode()
    return fields


def quantity(count: int, noun: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def one_line(body: bytes, longest: int) -> str:
    """A body in one line, cut where it is longer."""
    text = body.decode("utf-8", "replace")[: longest + 1]
    shown = printable(text.translate(_BLANKS))
    return f"{shown[: longest - 1]}…" if len(shown) > longest else shown
