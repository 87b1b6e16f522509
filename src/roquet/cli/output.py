"""Output: what commands print, for eyes or as JSON, and the question before something is done."""

import base64
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from roquet.client.received import Received
    from roquet.model.message import StoredMessage

    Stored = StoredMessage | Received

DRY: Final = "nothing was changed (--dry-run)"

Json = Annotated[bool, typer.Option("--json", help="JSON, with everything that is known.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def echo_json(values: Iterable[Any]) -> None:
    """Each value as one line of JSON."""
    import msgspec

    for value in values:
        typer.echo(msgspec.json.encode(value).decode())


def table(*columns: str, numbers: int | None = None) -> "Table":
    """A table without lines; columns from the place `numbers` on hold numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim")
    for place, column in enumerate(columns):
        right = numbers is not None and place >= numbers
        made.add_column(column, justify="right" if right else "left", overflow="fold")
    return made


def console(*, apart: bool = False) -> "Console":
    """Where tables go, `apart` to stderr: colours on a terminal alone."""
    from rich.console import Console

    return Console(highlight=False, stderr=apart)


def when(time_ms: int | None) -> str:
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


async def agreed(question: str, *, yes: bool, apart: bool = False) -> None:
    """Go on only if the user wants it; asked on the terminal unless said before.

    `apart` asks on stderr: what is on stdout is JSON then. A no ends the command with code 1, so
    that scripts know that nothing was done. Ctrl-C is an answer, too: nothing waits for the thread
    that reads.
    """
    if yes:
        return
    from roquet.client.threads import in_thread

    ask = partial(typer.confirm, question, default=False, err=apart)
    if not await in_thread(ask, "roquet-question"):
        typer.echo("nothing was done", err=True)
        raise typer.Exit(1)


def preview_of(lines: Iterable[str], *, dry_run: bool, json: bool) -> None:
    """What would be done, before it is asked for; with JSON on stderr, which the eyes see, too."""
    for line in lines:
        typer.echo(line, err=json)
    if dry_run:
        typer.echo(DRY, err=json)


def fields_of(message: "Stored") -> dict[str, Any]:
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


def counted(count: int, noun: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def preview(body: bytes, longest: int) -> str:
    """A body in one line, cut where it is longer."""
    text = body.decode("utf-8", "replace")
    shown = "".join(_printable(text[: longest + 1]))
    return f"{shown[: longest - 1]}…" if len(shown) > longest else shown


def _printable(text: str) -> Iterator[str]:
    for one in text:
        yield one if one.isprintable() else " "
