"""Watching: a command's result again and again until Ctrl-C, for its option --watch.

    terminal    the newest result in place of the one before, at most one screen of it
    pipe        a block for each result: the time, the result, an empty line
    --json      the lines of JSON of each result

An error of the first look ends the command. Later ones are shown, since the cluster may come back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from roquet.cli.terminal import output
from roquet.cli.terminal.result import Result
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from rich.console import RenderableType

WATCH_S: Final = 2.0
"""Seconds between two looks by default."""

NAMES: Final = ("--watch", "-w")

WatchOption = Annotated[
    float | None,
    typer.Option(
        *NAMES,
        min=0.1,
        metavar="[SECONDS]",
        help=f"Show it anew so often (every {WATCH_S:g} s), until Ctrl-C.",
    ),
]


class WatchableCommand(TyperCommand):
    """A command whose --watch may stand without its number of seconds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments and options."""
        return super().parse_args(ctx, [*with_seconds(args)])


def with_seconds(words: Sequence[str]) -> Iterator[str]:
    """The words of a command line, with the default behind a --watch that has no number."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        yield word
        if word in NAMES and not _is_number(following):
            yield str(WATCH_S)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


async def watch(look: Callable[[], Awaitable[Result]], seconds: float, *, as_json: bool) -> None:
    """Show the result of each look until a stop signal."""
    from rich.live import Live

    console = output.console()
    results = _results(look, seconds)
    if as_json:
        async for result in results:
            output.echo_json(result.json)
            output.echo_errors((*result.notes, *result.faults))
    elif not console.is_terminal:
        async for result in results:
            for part in _picture(result):
                console.print(part)
            console.print()
    else:
        from rich.console import Group

        with Live(console=console, auto_refresh=False) as live:
            async for result in results:
                live.update(Group(*_picture(result)), refresh=True)


async def _results(look: Callable[[], Awaitable[Result]], seconds: float) -> AsyncIterator[Result]:
    import asyncio  # here: a help text needs no event loop

    from roquet.cli.process import runtime

    stop = runtime.stop_signal()
    yield await look()
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()
                return
        try:
            yield await look()
        except RoquetError as error:
            yield Result(json=[{"fault": str(error)}], faults=[str(error)])


def _picture(result: Result) -> Iterator["RenderableType"]:
    """The time, the result, and what is wrong in red."""
    from roquet.net.clock import SYSTEM_CLOCK  # here: as above

    yield output.styled_text(output.time_text(SYSTEM_CLOCK.now_ms()), "dim")
    yield from result.text
    yield from result.hints
    for line in (*result.notes, *result.faults):
        yield output.styled_text(line, "red")
