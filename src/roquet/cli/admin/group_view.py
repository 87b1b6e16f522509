"""Group view: a group's members, queues and problems, and a planned reset, as tables."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from roquet.cli.terminal import output
from roquet.cli.terminal.output import table

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.admin.group_info import GroupInfo, GroupSummary
    from roquet.admin.offset_reset import QueueReset

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta")
"""Colours of members and their queues; a queue with a fault is red."""

FAULT: Final = "bold red"


def reset_fields(reset: "QueueReset") -> dict[str, Any]:
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


def reset_table(planned: "list[QueueReset]") -> "Table":
    """A table of planned resets, one queue a row."""
    shown = table("broker", "queue", "now", "then", "again", "skipped", numbers=1)
    for reset in planned:
        shown.add_row(
            reset.queue.broker_name,
            str(reset.queue.queue_id),
            "-" if reset.committed is None else f"{reset.committed:,}",
            f"{reset.target:,}",
            f"{reset.redelivered:,}",
            f"{reset.skipped:,}",
        )
    return shown


def group_parts(group: "GroupInfo") -> Iterator[Any]:
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


def headline(group: "GroupInfo") -> str:
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


def _members(group: "GroupInfo", colours: Mapping[str, str]) -> "Table":
    shown = table("member", "address", "language", "version", "listens to", "strategy")
    for member in group.members or ():
        subscriptions = ", ".join(
            f"{topic} {text}" for topic, text in sorted((member.subscriptions or {}).items())
        )
        shown.add_row(
            output.styled_text(member.client_id, colours[member.client_id]),
            member.address,
            member.language or "?",
            str(member.version),
            subscriptions,
            member.strategy or "",
        )
    return shown


def _queues(group: "GroupInfo", colours: Mapping[str, str]) -> "Table":
    shown = table("topic", "broker", "queue", "owner", "committed", "end", "lag", numbers=4)
    for queue in group.queues:
        owner = "?" if queue.owners is None else ", ".join(queue.owners) or "nobody"
        style = FAULT if queue.fault else colours.get(owner, "")
        shown.add_row(
            queue.topic,
            queue.broker,
            str(queue.queue_id),
            output.styled_text(owner, style),
            f"{queue.committed:,}",
            f"{queue.end:,}",
            f"{queue.lag:,}",
        )
    return shown


def summary_table(groups: "list[GroupSummary]") -> "Table":
    """A table of groups, one a row."""
    shown = table("group", "members", "lag", "dead letters", "", numbers=1)
    for group in groups:
        notes = ["disabled"] * bool(group.disabled_on) + ["part missing"] * bool(group.faults)
        counts = (group.members, group.lag, group.dead_letters)
        shown.add_row(
            group.name,
            *("?" if count is None else f"{count:,}" for count in counts),
            output.styled_text(", ".join(notes), FAULT),
        )
    return shown
