"""roquet group: members, queues and lag of consumer groups; created, reset and deleted."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.admin import group_view
from roquet.cli.process import runtime
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.arguments import GroupArgument
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import DryRunOption, JsonOption, YesOption
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

group: Final = typer.Typer(
    name="group", help="Consumer groups.", no_args_is_help=True, rich_markup_mode=None
)


@group.command()
def show(
    name: GroupArgument,
    *,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show a group: members, queues, lag and problems.

    Exit code 1 when there is a problem.
    """
    runtime.log_to_stderr(verbose=False)
    runtime.run(_show(name, namesrv, json=json))


@group.command("ls")
def list_groups(
    *,
    system: Annotated[
        bool, typer.Option("--system", help="The system's and our tools' own, too.")
    ] = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """List all groups, their members and lag."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_list(namesrv, system=system, json=json))


@group.command()
def create(
    name: GroupArgument,
    *,
    retries: Annotated[
        int | None, typer.Option(min=-1, help="How often a failed message is tried again.")
    ] = None,
    ordered: Annotated[bool | None, typer.Option(help="Whether messages come in order.")] = None,
    broadcast: Annotated[bool | None, typer.Option(help="Whether members may broadcast.")] = None,
    enabled: Annotated[bool | None, typer.Option(help="Whether it may consume.")] = None,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Create a group on all brokers, or change it; options that are not given stay."""
    runtime.log_to_stderr(verbose=False)
    fields = {
        "retry_max_times": retries,
        "consume_message_orderly": ordered,
        "consume_broadcast_enable": broadcast,
        "consume_enable": enabled,
    }
    changes = {key: value for key, value in fields.items() if value is not None}
    runtime.run(_create(namesrv, name, changes, json=json))


@group.command()
def delete(
    name: GroupArgument,
    *,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Delete a group and its progress on all brokers."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_delete(namesrv, name, dry_run=dry_run, yes=yes, json=json))


@group.command()
def reset(  # noqa: PLR0913 - each is an option
    name: GroupArgument,
    *,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Of which topic.", autocompletion=completion.topics)
    ],
    to: Annotated[str, typer.Option(help="first, last, or a time like 2026-01-31T12:00.")],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="BROKER:ID", help="Only this one; may be repeated."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create a group that no broker knows.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Reset a group's offsets. Going back repeats messages, going forward skips them."""
    runtime.log_to_stderr(verbose=False)
    only = [_parse_queue(text) for text in queues or ()]
    work = _GroupReset(namesrv, name, topic, only, create=create)
    runtime.run(work.run(to, dry_run=dry_run, yes=yes, json=json))


async def _create(namesrv: str | None, name: str, changes: dict[str, int], *, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        done = await groups.create(admin, name, changes)
    if json:
        output.echo_json([{"name": name, "brokers": done, "changed": True}])
        return
    output.echo(f"{name}: on {', '.join(done)}")


async def _delete(namesrv: str | None, name: str, *, dry_run: bool, yes: bool, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.client import AdminClient

    done: list[str] = []
    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        info = await groups.show(admin, name)
        groups.check_has_no_members(info)
        output.show_preview([group_view.headline(info)], dry_run=dry_run, json=json)
        if not dry_run:
            await output.confirm(f"Delete {name} and its progress?", yes=yes, to_stderr=json)
            done = await groups.delete(admin, name)
    if json:
        fields = {"name": name, "lag": info.lag, "brokers": done, "changed": not dry_run}
        output.echo_json([fields])
    elif not dry_run:
        output.echo(f"{name}: deleted on {', '.join(done)}")


class _GroupReset:
    """One run of `roquet group reset`."""

    def __init__(
        self,
        namesrv: str | None,
        name: str,
        topic: str,
        only: list[tuple[str, int]],
        *,
        create: bool,
    ) -> None:
        self._namesrv = namesrv
        self._name = name
        self._topic = topic
        self._only = only
        self._create = create

    async def run(self, to: str, *, dry_run: bool, yes: bool, json: bool) -> None:
        """Plan the reset, show it, ask, apply it."""
        from roquet.admin import offset_reset
        from roquet.admin.client import AdminClient

        name = self._name
        edges = {edge.value: edge for edge in offset_reset.QueueEdge}
        target = edges[to] if to in edges else output.parse_time_ms(to, "--to", output.EDGE_HINT)
        async with AdminClient(namesrv_addresses(self._namesrv)) as admin:
            moves = await offset_reset.plan(admin, name, self._topic, target, self._only)
            is_new = await self._is_new(admin)
            output.console(to_stderr=json).print(group_view.reset_table(moves))
            new = [f"no broker knows group {name!r} yet: it is made"] if is_new else []
            output.show_preview(new, dry_run=dry_run, json=json)
            if not dry_run:
                where = output.quantity(len(moves), "queue")
                await output.confirm(f"Reset {name} in {where}?", yes=yes, to_stderr=json)
                await offset_reset.reset(admin, name, moves)
        if json:
            output.echo_json(
                {**group_view.reset_fields(move), "changed": not dry_run} for move in moves
            )
        elif not dry_run:
            output.echo(f"{name}: goes on there")

    async def _is_new(self, admin: "AdminClient") -> bool:
        """Whether no broker knows the group. Raises UsageError for that without --create."""
        from roquet.admin import groups

        try:
            await groups.show(admin, self._name)
        except UsageError as error:
            if self._create:
                return True
            raise UsageError(f"{error} (--create makes it)") from error
        return False


def _parse_queue(text: str) -> tuple[str, int]:
    broker, colon, queue_id = text.rpartition(":")
    if not colon or not queue_id.isdecimal():
        raise UsageError(f"--queue {text!r}: BROKER:ID is wanted, as broker-a:3")
    return broker, int(queue_id)


async def _show(name: str, namesrv: str | None, *, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        info = await groups.show(admin, name)
    if json:
        output.echo_json([info])
    else:
        console = output.console()
        for part in group_view.group_parts(info):
            console.print(part)
    if info.problems:
        sys.exit(FAILED)


async def _list(namesrv: str | None, *, system: bool, json: bool) -> None:
    from roquet.admin import groups
    from roquet.admin.client import AdminClient, fault_lines

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        summaries, failed = await groups.listed(admin, system=system)
    if json:
        output.echo_json(summaries)
    elif summaries:
        output.console().print(group_view.summary_table(summaries))
    elif not failed:
        output.echo("no group")
    faults = {*fault_lines(failed), *(fault for one in summaries for fault in one.faults)}
    for fault in sorted(faults):
        output.echo(fault, err=True)
    if faults:
        sys.exit(FAILED)
