"""roquet group: members, queues and lag of consumer groups; created, copied, reset and deleted."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from roquet.admin import group_fork, groups, offset_reset
from roquet.admin.client import AdminClient, fault_lines
from roquet.admin.group_info import GroupInfo, GroupQueueInfo, GroupSummary
from roquet.admin.offset_reset import QueueEdge, QueueReset
from roquet.cli.command_options import option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import arguments, output
from roquet.cli.terminal.arguments import GroupArgument
from roquet.cli.terminal.output import table
from roquet.model.errors import UsageError
from roquet.rules.topic_attributes import parse_changes
from roquet.wire.codes import release_of

app: Final = CommandGroup("group", "Consumer groups.")


@app.command(is_watchable=True)
async def show(admin: AdminClient, name: GroupArgument) -> Result:
    """Show a group: members, queues, lag and problems.

    Exit code 1 when there is a problem.
    """
    info = await groups.show(admin, name)
    return Result(json=[info], text=group_parts(info), is_failed=bool(info.problems))


@app.command("ls", is_watchable=True)
async def list_groups(
    admin: AdminClient, system: bool = option("The system's and our tools' own, too.")
) -> Result:
    """List all groups, their members and lag."""
    summaries, failed = await groups.listed(admin, system=system)
    faults = {*fault_lines(failed), *(fault for one in summaries for fault in one.faults)}

    def text() -> Iterator[Any]:
        if summaries:
            yield summary_table(summaries)
        elif not failed:
            yield "no group"

    return Result(json=summaries, text=text(), faults=sorted(faults))


@app.command()
async def create(
    admin: AdminClient,
    name: GroupArgument,
    retries: int | None = option("How often a failed message is tried again.", min=-1),
    ordered: bool | None = option("Whether messages come in order."),
    broadcast: bool | None = option("Whether members may broadcast."),
    enabled: bool | None = option("Whether it may consume."),
    attributes: list[str] | None = option(
        "+priority.factor=50 or -priority.factor; may be repeated.", "--attribute"
    ),
) -> Result:
    """Create a group on all brokers, or change it; options that are not given stay."""
    fields = {
        "attributes": None if attributes is None else parse_changes(",".join(attributes)),
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
async def delete(admin: AdminClient, approval: Approval, name: GroupArgument) -> Result:
    """Delete a group and its progress on all brokers."""
    done: list[str] = []
    info = await groups.show(admin, name)
    groups.check_has_no_members(info)
    if await approval.ask([headline(info)], f"Delete {name} and its progress?"):
        done = await groups.delete(admin, name)
    fields = {"name": name, "lag": info.lag, "brokers": done}
    return approval.result([fields], f"{name}: deleted on {', '.join(done)}")


@app.command()
async def reset(
    admin: AdminClient,
    approval: Approval,
    name: GroupArgument,
    topic: str = option("Of which topic.", "-t", autocompletion=arguments.complete_topics),
    to: str = option("first, last, or a time like 2026-01-31T12:00."),
    queues: list[str] | None = option(
        "Only this one; may be repeated.", "--queue", metavar="BROKER:ID"
    ),
    create: bool = option("Create a group that no broker knows."),
) -> Result:
    """Reset a group's offsets. Going back repeats messages, going forward skips them."""
    only = [_parse_queue(text) for text in queues or ()]
    edges = {edge.value: edge for edge in offset_reset.QueueEdge}
    target = edges[to] if to in edges else output.parse_time_ms(to, "--to", output.EDGE_HINT)
    moves = await offset_reset.plan(admin, name, topic, target, only)
    is_new = await _is_new(admin, name, create=create)
    output.console(to_stderr=approval.as_json).print(reset_table(moves))
    new = [f"no broker knows group {name!r} yet: it is made"] if is_new else []
    if await approval.ask(new, f"Reset {name} in {output.quantity(len(moves), 'queue')}?"):
        await offset_reset.reset(admin, name, moves)
    return approval.result(map(reset_fields, moves), f"{name}: goes on there")


@app.command()
async def fork(
    admin: AdminClient,
    approval: Approval,
    name: GroupArgument,
    at: str = option("first, or a past time like 14:00 or 2026-01-31T12:00."),
    copy: str = option("The copy's name.", "--as"),
    topics: list[str] | None = option(
        "Only this one; may be repeated.", "--topic", "-t", autocompletion=arguments.complete_topics
    ),
) -> Result:
    """Copy a group: the copy reads the same messages from a past moment on.

    The group itself and its progress stay as they are.
    """
    now = datetime.fromtimestamp(admin.clock.now_ms() / 1000).astimezone()
    time_ms = None if at == QueueEdge.FIRST.value else moment_ms(at, now)
    target = QueueEdge.FIRST if time_ms is None else time_ms
    planned = await group_fork.plan(admin, name, copy, target, topics or ())
    output.console(to_stderr=approval.as_json).print(fork_table(planned.positions))
    since = "the oldest messages" if time_ms is None else output.time_text(time_ms)
    if await approval.ask([f"{copy} begins with {since}"], f"Copy {name} to {copy}?"):
        await group_fork.fork(admin, planned)
    fields = {"group": copy, "source": name}
    return approval.result(
        ({**fields, **fork_fields(one)} for one in planned.positions),
        f"{copy}: made; `roquet group delete {copy}` removes it",
    )


def moment_ms(text: str, now: datetime) -> int:
    """The past time of an option, in ms since 1970; a time of day is the last one before now."""
    if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text) is None:
        return output.parse_time_ms(text, "--at", "not first, ")
    moment = output.parse_time_ms(f"{now:%Y-%m-%d}T{text}", "--at")
    if moment > now.timestamp() * 1000:
        moment = output.parse_time_ms(f"{now - timedelta(days=1):%Y-%m-%d}T{text}", "--at")
    return moment


async def _is_new(admin: AdminClient, name: str, *, create: bool) -> bool:
    """Whether no broker knows the group. Raises UsageError for that without --create."""
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


COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta")
"""Colours of members and their queues; a queue with a fault is red."""

FAULT: Final = "bold red"


def reset_fields(reset: QueueReset) -> dict[str, Any]:
    """A planned reset of one queue for JSON."""
    return {
        "topic": reset.queue.topic,
        "broker": reset.queue.broker_name,
        "queue": reset.queue.queue_id,
        "now": reset.committed,
        "then": reset.target,
        "again": reset.redelivered,
        "skipped": reset.skipped,
    }


def fork_fields(position: QueueReset) -> dict[str, Any]:
    """The beginning of a group's copy in one queue for JSON."""
    return {
        "topic": position.queue.topic,
        "broker": position.queue.broker_name,
        "queue": position.queue.queue_id,
        "offset": position.target,
        "messages": position.end - position.target,
    }


def fork_table(positions: Sequence[QueueReset]) -> "output.Table":
    """A table of where a group's copy begins, one queue a row."""
    rows = ({**fork_fields(one), "queue": str(one.queue.queue_id)} for one in positions)
    columns = ("topic", "broker", "queue", "begins at", "messages")
    return table(columns, (row.values() for row in rows), numbers=2)


def reset_table(planned: list[QueueReset]) -> "output.Table":
    """A table of planned resets, one queue a row."""
    columns = ("broker", "queue", "now", "then", "again", "skipped")
    rows = (
        (
            one.queue.broker_name,
            str(one.queue.queue_id),
            one.committed,
            one.target,
            one.redelivered,
            one.skipped,
        )
        for one in planned
    )
    return table(columns, rows, numbers=1)


def group_parts(group: GroupInfo) -> Iterator[Any]:
    """Everything about a group: lines and tables, one below the other."""
    colours = {
        member.client_id: COLOURS[index % len(COLOURS)]
        for index, member in enumerate(group.members or ())
    }
    yield headline(group)
    for assignment in group.assignments:
        yield (
            f"{assignment.topic}: {assignment.strategy}, decision {assignment.number} of its broker"
        )
    if group.members:
        yield _members(group, colours)
    if group.queues:
        yield _queues(group, colours)
    for problem in group.problems:
        yield output.styled_text(f"! {problem}", FAULT)


def headline(group: GroupInfo) -> str:
    """A group in one line."""
    words = [group.name, output.known_quantity(group.member_count, "member")]
    words.append("lag not known" if group.lag is None else f"lag {group.lag:,}")
    if group.message_model is not None:
        words.insert(1, group.message_model)
    if group.dead_letters != 0:
        words.append(_dead_letters(group.dead_letters, group.dead_letters_not_resent))
    return "  ".join(words)


def _dead_letters(total: int | None, not_resent: int | None) -> str:
    left = "number sent again not known" if not_resent is None else f"{not_resent:,} not sent again"
    return f"{output.known_quantity(total, 'dead letter')} ({left}: `roquet dlq`)"


def _members(group: GroupInfo, colours: Mapping[str, str]) -> "output.Table":
    members = group.members or ()
    columns = ["member", "address", "language", "version", "listens to", "strategy"]
    columns += ["properties"] * any(one.properties for one in members)
    rows = (
        (
            output.styled_text(one.client_id, colours[one.client_id]),
            one.address,
            one.language or "?",
            one.release or release_of(one.version) or str(one.version),
            ", ".join(
                f"{topic} {text}" for topic, text in sorted((one.subscriptions or {}).items())
            ),
            one.strategy or "",
            ", ".join(f"{name}={value}" for name, value in sorted((one.properties or {}).items())),
        )[: len(columns)]
        for one in members
    )
    return table(columns, rows)


def _queues(group: GroupInfo, colours: Mapping[str, str]) -> "output.Table":
    columns = ("topic", "broker", "queue", "owner", "committed", "end", "lag")
    return table(columns, (_queue_row(one, colours) for one in group.queues), numbers=4)


def _queue_row(queue: GroupQueueInfo, colours: Mapping[str, str]) -> Sequence[object]:
    text = "?" if queue.owners is None else ", ".join(queue.owners) or "nobody"
    owner = output.styled_text(text, FAULT if queue.fault else colours.get(text, ""))
    place = (queue.topic, queue.broker, str(queue.queue_id))
    return *place, owner, queue.committed, queue.end, queue.lag


def summary_table(groups: list[GroupSummary]) -> "output.Table":
    """A table of groups, one a row."""
    columns = ("group", "members", "lag", "dead letters", "")
    return table(columns, map(_summary_row, groups), numbers=1)


def _summary_row(group: GroupSummary) -> Sequence[object]:
    notes = ["disabled"] * bool(group.disabled_on) + ["part missing"] * bool(group.faults)
    counts = (group.members, group.lag, group.dead_letters)
    shown = ("?" if count is None else count for count in counts)
    return [group.name, *shown, output.styled_text(", ".join(notes), FAULT)]
