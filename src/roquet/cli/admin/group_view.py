"""What is told of a group: its members and queues, a line of it, and where a reset takes it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from roquet.cli.terminal import output
from roquet.cli.terminal.output import table

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.admin.group_info import GroupInfo, GroupSummary
    from roquet.admin.offset_reset import QueueReset

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta")
"""One for each member, as far as they go; a red queue is one with a fault."""

FAULT: Final = "bold red"


def reset_fields(move: "QueueReset") -> dict[str, Any]:
    """A move for programs."""
    return {
        "topic": move.queue.topic,
        "broker": move.queue.broker_name,
        "queue": move.queue.queue_id,
        "now": move.committed,
        "then": move.target,
        "again": move.redelivered,
        "skipped": move.skipped,
    }


def reset_table(planned: "list[QueueReset]") -> "Table":
    """Where a group goes on in each queue."""
    shown = table("broker", "queue", "now", "then", "again", "skipped", numbers=1)
    for move in planned:
        shown.add_row(
            move.queue.broker_name,
            str(move.queue.queue_id),
            "-" if move.committed is None else f"{move.committed:,}",
            f"{move.target:,}",
            f"{move.redelivered:,}",
            f"{move.skipped:,}",
        )
    return shown


def group_parts(found: "GroupInfo") -> Iterator[Any]:
    """What is printed of a group, one below the other."""
    colours = {
        member.client_id: COLOURS[place % len(COLOURS)]
        for place, member in enumerate(found.members)
    }
    yield headline(found)
    for one in found.divisions:
        yield f"{one.topic}: {one.strategy}, decision {one.number} of its broker"
    if found.members:
        yield _members(found, colours)
    if found.queues:
        yield _queues(found, colours)
    for problem in found.problems:
        yield output.styled_text(f"! {problem}", FAULT)


def headline(found: "GroupInfo") -> str:
    """A group in one line."""
    words = [found.name, output.quantity(len(found.members), "member"), f"lag {found.lag:,}"]
    if found.message_model is not None:
        words.insert(1, found.message_model)
    return "  ".join(words)


def _members(found: "GroupInfo", colours: Mapping[str, str]) -> "Table":
    shown = table("member", "address", "language", "version", "listens to", "strategy")
    for one in found.members:
        wishes = ", ".join(f"{topic} {wish}" for topic, wish in sorted((one.wishes or {}).items()))
        shown.add_row(
            output.styled_text(one.client_id, colours[one.client_id]),
            one.address,
            one.language or "?",
            str(one.version),
            wishes,
            one.strategy or "",
        )
    return shown


def _queues(found: "GroupInfo", colours: Mapping[str, str]) -> "Table":
    shown = table("topic", "broker", "queue", "owner", "committed", "end", "lag", numbers=4)
    for queue in found.queues:
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


def summary_table(found: "list[GroupSummary]") -> "Table":
    """A line for each group."""
    shown = table("group", "members", "lag", "", numbers=1)
    for one in found:
        off = output.styled_text("disabled", FAULT) if one.disabled_on else ""
        shown.add_row(one.name, f"{one.members:,}", f"{one.lag:,}", off)
    return shown
