"""roquet topic ls, show, create, update, resize, delete: topics on all brokers of a cluster."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from roquet.admin import resizing, topic_list, topic_preview, topics
from roquet.admin.client import AdminClient, fault_lines
from roquet.admin.resizing import ResizeStep
from roquet.admin.topic_list import TopicSummary
from roquet.admin.topics import (
    TopicBrokerInfo,
    TopicInfo,
    TopicQueueInfo,
    TopicSettings,
    parse_permission,
)
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import BROKERS, TopicArgument
from roquet.cli.terminal.output import table
from roquet.model.errors import UsageError

app: Final = CommandGroup("topic", "Topics and their queues.")

PERMISSION: Final = option("RW, R, W, or - for neither.", "--perm")
ATTRIBUTES: Final = option("+message.type=FIFO or -message.type; may be repeated.", "--attribute")


@app.command("ls", is_watchable=True)
async def list_topics(
    admin: AdminClient, system: bool = option("Retry, dead-letter and system topics, too.")
) -> Result:
    """List the topics: their queues, messages, messages a second, and newest message.

    Exit code 1 when a broker does not answer: its part is missing.
    """
    found, failed = await topic_list.summaries(admin, system=system)
    text = [topic_table(found)] if found else ["no topic"]
    return Result(json=found, text=text, faults=fault_lines(failed))


@app.command(is_watchable=True)
async def show(admin: AdminClient, name: TopicArgument) -> Result:
    """Show a topic: brokers, settings, queues and groups."""
    info = await topics.show(admin, name)
    return Result(json=[info], text=topic_parts(info), is_failed=bool(info.problems))


@app.command()
async def create(
    admin: AdminClient,
    name: TopicArgument,
    queues: int = option("On each broker.", default=8, min=1),
    brokers: list[str] | None = BROKERS,
    permission: str | None = PERMISSION,
    order: bool = option("An ordered topic."),
    attributes: list[str] | None = ATTRIBUTES,
) -> Result:
    """Create a topic on all brokers, or on those named."""
    settings = _settings((queues, queues), permission, order or None, attributes)
    done = await topics.create(admin, name, settings, brokers or [])
    line = f"{name}: {output.quantity(queues, 'queue')} on each of {', '.join(done)}"
    return Result(json=[{"name": name, "brokers": done, "changed": True}], text=[line])


@app.command()
async def update(  # noqa: PLR0913 - each is an option
    admin: AdminClient,
    approval: Approval,
    name: TopicArgument,
    *,
    read_queues: int | None = option("On each broker.", min=1),
    write_queues: int | None = option("On each broker.", min=1),
    brokers: list[str] | None = BROKERS,
    permission: str | None = PERMISSION,
    order: bool | None = option("Whether it is an ordered topic."),
    attributes: list[str] | None = ATTRIBUTES,
) -> Result:
    """Change a topic's settings. `resize` changes the number of queues safely.

    Options that are not given stay. Asks before messages end up in queues that cannot be read.
    """
    settings = _settings((read_queues, write_queues), permission, order, attributes)
    info = await topics.show(admin, name)
    change = topic_preview.TopicChange(info, settings, topics.select_brokers(info, brokers or []))
    is_asked = change.hides or approval.dry_run
    if not is_asked or await approval.ask(change.preview(), f"Change {name}?"):
        await topics.update(admin, name, settings, brokers or [])
    return approval.result([change.fields()], f"{name}: changed on {', '.join(change.brokers)}")


@app.command()
async def resize(
    admin: AdminClient,
    approval: Approval,
    name: TopicArgument,
    queues: int = argument("How many, on each broker."),
    settle: float = option(
        "Seconds to wait for producers to refresh their routes.", default=35.0, min=0
    ),
) -> Result:
    """Give a topic more or fewer queues while it is in use; no message is left behind.

    Fewer: the last queues get no new messages, every group reads what is in them, then they are
    removed. That takes as long as the slowest group; after Ctrl-C the same command continues.
    """
    resizing.check_queue_count(queues)
    count = output.quantity(queues, "queue")
    info = await resizing.whole_topic(admin, name)
    own = await resizing.broadcasting_groups(admin, info.groups or ())
    preview = topic_preview.resize_preview(info, queues, own)
    if await approval.ask(preview, f"Give {name} {count}?"):
        with closing(_ResizeProgress()) as progress:
            settle_ms = int(settle * 1000)
            async for step in resizing.resize(admin, name, queues, settle_ms=settle_ms):
                progress.show(step)
    fields = topic_preview.resize_fields(info, queues, own)
    return approval.result([fields], f"{name}: {count} on each broker")


@app.command()
async def delete(admin: AdminClient, approval: Approval, name: TopicArgument) -> Result:
    """Delete a topic with all its messages."""
    info = await topics.show(admin, name)
    preview = topic_preview.delete_preview(info)
    if await approval.ask(preview, f"Delete {name} and all its messages?"):
        await topics.delete(admin, name)
    line = f"{name}: deleted on {topic_preview.broker_names(info)}"
    return approval.result([topic_preview.delete_fields(info)], line)


def topic_table(topics: Sequence[TopicSummary]) -> "output.Table":
    """A table of topics, one a row."""
    columns = ("topic", "queues", "messages", "in/s", "last stored")
    return table(columns, map(_summary_row, topics), numbers=1)


def _summary_row(topic: TopicSummary) -> Sequence[object]:
    rate = None if topic.in_per_s is None else f"{topic.in_per_s:,.1f}"
    counts = (topic.queues, topic.messages, rate)
    shown = ("?" if count is None else count for count in counts)
    return topic.name, *shown, output.time_text(topic.stored_ms)


def topic_parts(topic: TopicInfo) -> Iterator[Any]:
    """Everything about a topic: lines and tables, one below the other."""
    yield f"{topic.name}  {output.known_quantity(topic.messages, 'message')}"
    if topic.order_conf:
        yield f"ordered queues: {topic.order_conf}"
    groups = "not known" if topic.groups is None else ", ".join(topic.groups) or "nobody"
    yield f"read by: {groups}"
    yield table(
        ("broker", "read queues", "write queues", "permission", "settings"),
        map(_place_row, topic.places),
    )
    columns = ("broker", "queue", "begin", "end", "messages", "last stored")
    yield table(columns, map(_queue_row, topic.queues), numbers=1)
    for problem in topic.problems:
        yield f"! {problem}"


def _queue_row(queue: TopicQueueInfo) -> Sequence[object]:
    messages, stored = queue.end - queue.begin, output.time_text(queue.stored_ms)
    return queue.broker, str(queue.queue_id), queue.begin, queue.end, messages, stored


def _place_row(place: TopicBrokerInfo) -> Sequence[str]:
    extra = {**(place.attributes or {}), **({"order": "true"} if place.order else {})}
    settings = ", ".join(f"{key}={value}" for key, value in sorted(extra.items()))
    queues = str(place.read_queues), str(place.write_queues)
    return place.broker, *queues, place.permission, settings


class _ResizeProgress:
    """Shows what a resize waits for: one changing line on a terminal, elsewhere a line a change."""

    def __init__(self) -> None:
        self._last = ""
        self._is_live = sys.stderr.isatty()

    def show(self, step: ResizeStep) -> None:
        """Show a step."""
        waiting = "".join(f", {group} has {left:,} to read" for group, left in step.waiting.items())
        line = f"{step.doing}{waiting}"
        if self._is_live:
            left = f" ({step.left_ms / 1000:.0f} s)" if step.left_ms else ""
            output.rewrite_line(f"{line}{left}")
        elif line != self._last:
            output.echo(line, err=True)
        self._last = line

    def close(self) -> None:
        """Erase the line on a terminal."""
        if self._is_live and self._last:
            output.rewrite_line("")


def _settings(
    queues: tuple[int | None, int | None],
    permission: str | None,
    order: bool | None,
    attributes: list[str] | None,
) -> TopicSettings:
    read, write = queues
    settings = TopicSettings(
        read_queues=read,
        write_queues=write,
        permission=None if permission is None else parse_permission(permission),
        order=order,
        attributes=",".join(attributes) if attributes else None,
    )
    if settings == TopicSettings():
        raise UsageError("say what is to be changed: --help lists it")
    return settings
