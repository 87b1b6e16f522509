"""roquet group: members, queues and lag of consumer groups; created, reset and deleted."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.admin import group_view
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.arguments import GroupArgument
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

app: Final = CommandGroup("group", "Consumer groups.")


@app.command()
async def show(admin: "AdminClient", name: GroupArgument) -> Result:
    """Show a group: members, queues, lag and problems.

    Exit code 1 when there is a problem.
    """
    from roquet.admin import groups

    info = await groups.show(admin, name)
    return Result(json=[info], text=group_view.group_parts(info), is_failed=bool(info.problems))


@app.command("ls")
async def list_groups(
    admin: "AdminClient",
    *,
    system: Annotated[
        bool, typer.Option("--system", help="The system's and our tools' own, too.")
    ] = False,
) -> Result:
    """List all groups, their members and lag."""
    from roquet.admin import groups
    from roquet.admin.client import fault_lines

    summaries, failed = await groups.listed(admin, system=system)
    faults = {*fault_lines(failed), *(fault for one in summaries for fault in one.faults)}

    def text() -> Iterator[Any]:
        if summaries:
            yield group_view.summary_table(summaries)
        elif not failed:
            yield "no group"

    return Result(json=summaries, text=text(), faults=sorted(faults))


@app.command()
async def create(
    admin: "AdminClient",
    name: GroupArgument,
    *,
    retries: Annotated[
        int | None, typer.Option(min=-1, help="How often a failed message is tried again.")
    ] = None,
    ordered: Annotated[bool | None, typer.Option(help="Whether messages come in order.")] = None,
    broadcast: Annotated[bool | None, typer.Option(help="Whether members may broadcast.")] = None,
    enabled: Annotated[bool | None, typer.Option(help="Whether it may consume.")] = None,
) -> Result:
    """Create a group on all brokers, or change it; options that are not given stay."""
    from roquet.admin import groups

    fields = {
        "retry_max_times": retries,
        "consume_message_orderly": ordered,
        "consume_broadcast_enable": broadcast,
        "consume_enable": enabled,
    }
    changes = {key: value for key, value in fields.items() if value is not None}
    done = await groups.create(admin, name, changes)
    return Result(
        json=[{"name": name, "brokers": done, "changed": True}],
        text=[f"{name}: on {', '.join(done)}"],
    )


@app.command()
async def delete(admin: "AdminClient", approval: Approval, name: GroupArgument) -> Result:
    """Delete a group and its progress on all brokers."""
    from roquet.admin import groups

    done: list[str] = []
    info = await groups.show(admin, name)
    groups.check_has_no_members(info)
    if await approval.ask([group_view.headline(info)], f"Delete {name} and its progress?"):
        done = await groups.delete(admin, name)
    fields = {"name": name, "lag": info.lag, "brokers": done}
    return approval.result([fields], f"{name}: deleted on {', '.join(done)}")


@app.command()
async def reset(
    admin: "AdminClient",
    approval: Approval,
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
) -> Result:
    """Reset a group's offsets. Going back repeats messages, going forward skips them."""
    from roquet.admin import offset_reset

    only = [_parse_queue(text) for text in queues or ()]
    edges = {edge.value: edge for edge in offset_reset.QueueEdge}
    target = edges[to] if to in edges else output.parse_time_ms(to, "--to", output.EDGE_HINT)
    moves = await offset_reset.plan(admin, name, topic, target, only)
    is_new = await _is_new(admin, name, create=create)
    output.console(to_stderr=approval.as_json).print(group_view.reset_table(moves))
    new = [f"no broker knows group {name!r} yet: it is made"] if is_new else []
    if await approval.ask(new, f"Reset {name} in {output.quantity(len(moves), 'queue')}?"):
        await offset_reset.reset(admin, name, moves)
    return approval.result(map(group_view.reset_fields, moves), f"{name}: goes on there")


async def _is_new(admin: "AdminClient", name: str, *, create: bool) -> bool:
    """Whether no broker knows the group. Raises UsageError for that without --create."""
    from roquet.admin import groups

    try:
        await groups.show(admin, name)
    except UsageError as error:
        if create:
            return True
        raise UsageError(f"{error} (--create makes it)") from error
    return False


def _parse_queue(text: str) -> tuple[str, int]:
    broker, colon, queue_id = text.rpartition(":")
    if not colon or not queue_id.isdecimal():
        raise UsageError(f"--queue {text!r}: BROKER:ID is wanted, as broker-a:3")
    return broker, int(queue_id)
