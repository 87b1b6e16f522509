"""roquet group: who is in one, what waits for it, where it goes on; made, reset and deleted."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli import output, running
from roquet.cli.messages import EDGES, Namesrv, servers
from roquet.cli.output import DRY, DryRun, Json, Yes, table
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.admin.group_view import Group, Summary
    from roquet.admin.progress import Move

group: Final = typer.Typer(
    name="group", help="Consumer groups.", no_args_is_help=True, rich_markup_mode=None
)

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta")
"""One for each member, as far as they go; a red queue is one with a fault."""

FAULT: Final = "bold red"


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


@group.command()
def create(
    name: Annotated[str, typer.Argument(help="The group's name.")],
    *,
    retries: Annotated[
        int | None, typer.Option(min=-1, help="How often a failed message is tried again.")
    ] = None,
    ordered: Annotated[bool | None, typer.Option(help="Whether messages come in order.")] = None,
    broadcast: Annotated[bool | None, typer.Option(help="Whether members may broadcast.")] = None,
    enabled: Annotated[bool | None, typer.Option(help="Whether it may consume.")] = None,
    namesrv: Namesrv = None,
) -> None:
    """Create a group on all brokers, or change it; what is not given stays."""
    running.log_to_stderr(verbose=False)
    given = {
        "retry_max_times": retries,
        "consume_message_orderly": ordered,
        "consume_broadcast_enable": broadcast,
        "consume_enable": enabled,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    running.run(_create(namesrv, name, changes))


@group.command()
def delete(
    name: Annotated[str, typer.Argument(help="The group's name.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    namesrv: Namesrv = None,
) -> None:
    """Delete a group and its progress on all brokers."""
    running.log_to_stderr(verbose=False)
    running.run(_delete(namesrv, name, dry_run=dry_run, yes=yes))


@group.command()
def reset(
    name: Annotated[str, typer.Argument(help="The group's name.")],
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Of which topic.")],
    to: Annotated[str, typer.Option(help="first, last, or a time like 2026-01-31T12:00.")],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="BROKER:ID", help="This one alone; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    namesrv: Namesrv = None,
) -> None:
    """Have a group go on elsewhere: earlier messages come again, later ones are skipped."""
    running.log_to_stderr(verbose=False)
    only = [_place(text) for text in queues or ()]
    running.run(_reset(namesrv, (name, topic, to), only, dry_run=dry_run, yes=yes))


async def _create(namesrv: str | None, name: str, changes: dict[str, int]) -> None:
    from roquet.admin import groups
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        done = await groups.create(reach, name, changes)
    typer.echo(f"{name}: on {', '.join(done)}")


async def _delete(namesrv: str | None, name: str, *, dry_run: bool, yes: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await groups.show(reach, name)
        typer.echo(_headline(found))
        if found.members:
            raise UsageError(f"group {name!r} has members: stop them first")
        if dry_run:
            typer.echo(DRY)
            return
        await output.agreed(f"Delete {name} and its progress?", yes=yes)
        typer.echo(f"{name}: deleted on {', '.join(await groups.delete(reach, name))}")


async def _reset(
    namesrv: str | None,
    what: tuple[str, str, str],
    only: list[tuple[str, int]],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    from roquet.admin import progress
    from roquet.admin.reach import Reach

    name, topic, to = what
    edges = {edge.value: edge for edge in progress.Edge}
    target = edges[to] if to in edges else output.time_ms(to, "--to", EDGES)
    async with Reach(servers(namesrv)) as reach:
        moves = await progress.plan(reach, name, topic, target, only)
        output.console().print(_moves(moves))
        if dry_run:
            typer.echo(DRY)
            return
        where = output.counted(len(moves), "queue")
        await output.agreed(f"Reset {name} in {where}?", yes=yes)
        await progress.reset(reach, name, moves)
        typer.echo(f"{name}: goes on there")


def _place(text: str) -> tuple[str, int]:
    broker, colon, queue_id = text.rpartition(":")
    if not colon or not queue_id.isdecimal():
        raise UsageError(f"--queue {text!r}: BROKER:ID is wanted, as broker-a:3")
    return broker, int(queue_id)


def _moves(moves: "list[Move]") -> "Table":
    shown = table("broker", "queue", "now", "then", "again", "skipped", numbers=1)
    for move in moves:
        shown.add_row(
            move.queue.broker_name,
            str(move.queue.queue_id),
            "-" if move.now is None else f"{move.now:,}",
            f"{move.then:,}",
            f"{move.again:,}",
            f"{move.skipped:,}",
        )
    return shown


async def _show(name: str, namesrv: str | None, *, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await groups.show(reach, name)
    if json:
        output.echo_json([found])
        return
    console = output.console()
    for part in _parts(found):
        console.print(part, markup=False)


async def _list(namesrv: str | None, *, system: bool, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await groups.summaries(reach, system=system)
    if json:
        output.echo_json(found)
    elif found:
        output.console().print(_summaries(found))
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
    parts = [found.name, output.counted(len(found.members), "member"), f"lag {found.lag:,}"]
    if found.message_model is not None:
        parts.insert(1, found.message_model)
    return "  ".join(parts)


def _members(found: "Group", colours: Mapping[str, str]) -> "Table":
    from rich.text import Text

    shown = table("member", "address", "language", "version", "listens to", "strategy")
    for one in found.members:
        wishes = ", ".join(f"{topic} {wish}" for topic, wish in sorted((one.wishes or {}).items()))
        shown.add_row(
            Text(one.client_id, style=colours[one.client_id]),
            one.address,
            one.language or "?",
            str(one.version),
            Text(wishes),
            one.strategy or "",
        )
    return shown


def _queues(found: "Group", colours: Mapping[str, str]) -> "Table":
    from rich.text import Text

    shown = table("topic", "broker", "queue", "owner", "committed", "end", "lag", numbers=4)
    for queue in found.queues:
        owner = "?" if queue.owners is None else ", ".join(queue.owners) or "nobody"
        style = FAULT if queue.fault else colours.get(owner, "")
        shown.add_row(
            queue.topic,
            queue.broker,
            str(queue.queue_id),
            Text(owner, style=style),
            f"{queue.committed:,}",
            f"{queue.end:,}",
            f"{queue.lag:,}",
        )
    return shown


def _summaries(found: "list[Summary]") -> "Table":
    shown = table("group", "members", "lag", numbers=1)
    for one in found:
        shown.add_row(one.name, f"{one.members:,}", f"{one.lag:,}")
    return shown
