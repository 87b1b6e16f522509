"""roquet message show, find, at, why-late: single messages, by id, key, place or time."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import to_builtins

from roquet.admin import messages, why_late
from roquet.admin.client import AdminClient
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal import arguments, output
from roquet.cli.terminal.arguments import BrokerArgument, TopicArgument
from roquet.model.errors import UsageError
from roquet.model.message import StoredMessage
from roquet.model.names import CLI_GROUP, TRACE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.rules.lateness import span_text

PREVIEW_MAX: Final = 60
"""Characters of a body in a line for eyes; `show` and `--json` cut nothing."""

app: Final = CommandGroup("message", "Single messages.")


@app.command()
async def show(
    admin: AdminClient,
    message_id: str = argument("Of either kind.", metavar="ID"),
    topic: str | None = option(
        "Needed for ids that producers made.", "-t", autocompletion=arguments.complete_topics
    ),
) -> Result:
    """Show the message of an id, with all its properties and its body."""
    matches = await messages.by_id(admin, message_id.upper(), topic)
    return _found(matches, f"no message {message_id}", is_whole=True)


@app.command()
async def find(
    admin: AdminClient,
    namesrv: str,
    topic: TopicArgument,
    key: str | None = option("With this key."),
    begin: str | None = option("Stored then or later: 2026-01-31T12:00.", "--from"),
    end: str | None = option("Stored before then.", "--to"),
    count: int = option(
        "At most so many: the newest with --key, else the oldest.", default=64, min=1
    ),
) -> Result:
    """Find a topic's messages by key, by time, or by both."""
    begin_ms = output.parse_time_ms(begin, "--from") if begin else 0
    end_ms = output.parse_time_ms(end, "--to") if end else 2**63 - 1
    if key is not None:
        matches = await messages.by_key(
            admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count + 1
        )
        nothing = f"no message of {topic} with key {key!r}"
        return _found(matches[-count:], nothing, note=_left_out(len(matches), count, "newest"))
    async with messages.MessageViewer(namesrv, group=CLI_GROUP) as reader:
        bodies = messages.BodyLimit()
        each = messages.by_time(reader, topic, begin_ms, end_ms, each=count + 1)
        matches = [bodies.cut(message) async for message in each]
    matches.sort(key=lambda message: message.stored_ms)
    nothing = f"no message of {topic} from that time"
    return _found(matches[:count], nothing, note=_left_out(len(matches), count, "oldest"))


@app.command()
async def at(
    namesrv: str,
    topic: TopicArgument,
    broker: BrokerArgument,
    queue: int = argument("The queue's id."),
    offset: int = argument("The message's offset."),
) -> Result:
    """Show the message at an offset of a queue."""
    place = MessageQueue(topic, broker, queue)
    async with messages.MessageViewer(namesrv, group=CLI_GROUP) as reader:
        if place not in await messages.queues(reader, topic):
            raise UsageError(f"there is no queue {place}")
        message = await messages.by_offset(reader, place, offset)
    return _found([message] if message else [], f"no message at {offset}", is_whole=True)


@app.command("why-late")
async def why_late_command(
    admin: AdminClient,
    namesrv: str,
    message_id: str = argument("Of either kind.", metavar="ID"),
    topic: str | None = option(
        "Needed for ids that producers made.", "-t", autocompletion=arguments.complete_topics
    ),
    group: str | None = option(
        "Only this group; else all that read it.", autocompletion=arguments.complete_groups
    ),
    trace_topic: str = option("The topic of traces.", default=TRACE_TOPIC),
) -> Result:
    """Show why a message was handled when it was: its events, and what took the longest.

    Traces of clients make it exact; what brokers alone know is shown without them.
    """
    async with messages.MessageViewer(namesrv, group=CLI_GROUP) as reader:
        message, accounts = await why_late.explain(
            admin,
            reader,
            message_id.upper(),
            topic=topic,
            group=group,
            trace_topic=trace_topic,
        )
    return Result(
        json=({"message_id": message.message_id, **to_builtins(one)} for one in accounts),
        text=(line for one in accounts for line in _account_lines(message, one)),
    )


def _account_lines(message: StoredMessage, account: why_late.GroupAccount) -> Iterator[str]:
    who = f"group {account.group}" if account.group else "no group reads the topic"
    ended = "" if account.is_finished or not account.group else ": not handled yet, as far as known"
    yield f"{message.message_id} of {message.topic}, {who}{ended}"
    for event in account.events:
        yield f"  {output.time_text(event.at_ms)}  {event.text}"
    yield "  the longest first:"
    for gap in account.gaps:
        yield f"    {span_text(gap.ms):>12}  {gap.cause}"
    yield "  not known:"
    for text in account.not_known:
        yield f"    {text}"


def _found(
    messages: Sequence[StoredMessage], nothing: str, *, is_whole: bool = False, note: str = ""
) -> Result:
    """Messages, whole or a line each; without any, a failure that says `nothing`."""
    hosts = ("offset_message_id", "born_host", "store_host")
    return Result(
        json=(
            {**output.message_fields(one), **{name: getattr(one, name) for name in hosts}}
            for one in messages
        ),
        text=(line for one in messages for line in (_whole(one) if is_whole else [_line(one)])),
        notes=[note] if note else (),
        faults=() if messages else [nothing],
    )


def _left_out(found: int, count: int, which: str) -> str:
    """A note that there are more messages than were asked for."""
    if found <= count:
        return ""
    return f"the {which} {count:,} of at least {found:,}; --count shows more"


def _line(message: StoredMessage) -> str:
    place = f"{message.broker_name}:{message.queue_id}:{message.queue_offset}"
    key = " ".join(message.keys) or "-"
    return (
        f"{message.message_id}  {output.time_text(message.stored_ms)}  {place}"
        f"  tag {message.tag or '-'}  key {key}  {output.one_line(message.body, PREVIEW_MAX)}"
        f"{message.body_note and f'  ({message.body_note})'}"
    )


def _whole(message: StoredMessage) -> Iterator[str]:
    shown = {
        "id": message.message_id,
        "broker's id": message.offset_message_id,
        "topic": message.topic,
        "place": f"{message.broker_name} queue {message.queue_id} offset {message.queue_offset}",
        "born": f"{output.time_text(message.born_ms)} at {message.born_host}",
        "stored": f"{output.time_text(message.stored_ms)} at {message.store_host}",
        "tag": message.tag or "-",
        "keys": " ".join(message.keys) or "-",
        "failed": f"{message.reconsume_times} times",
        "size": f"{len(message.body):,} bytes of body, {message.size:,} stored",
    }
    for name, value in shown.items():
        yield f"{name + ':':13} {value}"
    for name, value in sorted(message.properties.items()):
        yield f"  {name} = {output.one_line(value, 2_000)}"
    yield ""
    output.echo_lines(message.body.decode("utf-8", "replace"), indent="  ")  # which keeps tabs
    if message.body_note:
        yield f"({message.body_note})"
