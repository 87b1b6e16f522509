"""roquet group show, ls: who is in a group, who works on which queue, and how much waits."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli import running
from roquet.cli.messages import Namesrv, servers

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from roquet.admin.group_view import Group, Summary

group: Final = typer.Typer(
    name="group", help="Consumer groups.", no_args_is_help=True, rich_markup_mode=None
)

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta")
"""One for each member, as far as they go; a red queue is one with a fault."""

FAULT: Final = "bold red"

Json = Annotated[bool, typer.Option("--json", help="JSON, with everything that is known.")]


@group.command()
def show(
    name: Annotated[str, typer.Argument(help="The group's name.")],
    *,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Show a group: its members, who works on which queue, the lag, and what is amiss."""
    running.log_to_stderr(verbose=False)
    running.run(_show(name, namesrv, json=json))


@group.command("ls")
def list_groups(
    *,
    system: Annotated[bool, typer.Option("--system", help="The system's own, too.")] = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """List all groups, how many members each has, and how many messages wait for it."""
    running.log_to_stderr(verbose=False)
    running.run(_list(namesrv, system=system, json=json))


async def _show(name: str, namesrv: str | None, *, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await groups.show(reach, name)
    if json:
        typer.echo(_as_json(found))
        return
    console = _console()
    for part in _parts(found):
        console.print(part, markup=False)


async def _list(namesrv: str | None, *, system: bool, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await groups.summaries(reach, system=system)
    if json:
        for one in found:
            typer.echo(_as_json(one))
    elif found:
        _console().print(_summaries(found))
    else:
        typer.echo("no group")


def _parts(found: "Group") -> Iterator[Any]:
    """What is printed of a group, one below the other."""
    from rich.text import Text

    colours = {
        member.client_id: COLOURS[place % len(COLOURS)]
        for place, member in enumerate(found.members)
    }
    yield _headline(found)
    for one in found.divisions:
        yield f"{one.topic}: {one.strategy}, decision {one.number} of its broker"
    if found.members:
        yield _members(found, colours)
    if found.queues:
        yield _queues(found, colours)
    for problem in found.problems:
        yield Text(f"! {problem}", style=FAULT)


def _headline(found: "Group") -> str:
    count = len(found.members)
    parts = [found.name, f"{count} member{'' if count == 1 else 's'}", f"lag {found.lag:,}"]
    if found.message_model is not None:
        parts.insert(1, found.message_model)
    return "  ".join(parts)


def _members(found: "Group", colours: Mapping[str, str]) -> "Table":
    from rich.text import Text

    table = _table("member", "address", "language", "version", "listens to", "strategy")
    for one in found.members:
        wishes = ", ".join(f"{topic} {wish}" for topic, wish in sorted((one.wishes or {}).items()))
        table.add_row(
            Text(one.client_id, style=colours[one.client_id]),
            one.address,
            one.language or "?",
            str(one.version),
            Text(wishes),
            one.strategy or "",
        )
    return table


def _queues(found: "Group", colours: Mapping[str, str]) -> "Table":
    from rich.text import Text

    table = _table("topic", "broker", "queue", "owner", "committed", "end", "lag", numbers=4)
    for queue in found.queues:
        owner = "?" if queue.owners is None else ", ".join(queue.owners) or "nobody"
        style = FAULT if queue.fault else colours.get(owner, "")
        table.add_row(
            queue.topic,
            queue.broker,
            str(queue.queue_id),
            Text(owner, style=style),
            f"{queue.committed:,}",
            f"{queue.end:,}",
            f"{queue.lag:,}",
        )
    return table


def _summaries(found: "list[Summary]") -> "Table":
    table = _table("group", "members", "lag", numbers=1)
    for one in found:
        table.add_row(one.name, f"{one.members:,}", f"{one.lag:,}")
    return table


def _table(*columns: str, numbers: int | None = None) -> "Table":
    """A table without lines; columns from the place `numbers` on hold numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, column in enumerate(columns):
        right = numbers is not None and place >= numbers
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _as_json(value: "Group | Summary") -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
