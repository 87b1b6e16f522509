"""roquet message show, find, at: single messages, by id, key, place or time."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.arguments import BrokerArgument, TopicArgument
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import JsonOption
from roquet.model.names import CLI_GROUP
from roquet.model.queue import MessageQueue

if TYPE_CHECKING:
    from roquet.model.message import StoredMessage

PREVIEW_MAX: Final = 60
"""Characters of a body in a line for eyes; `show` and `--json` cut nothing."""

app: Final = typer.Typer(
    name="message", no_args_is_help=True, rich_markup_mode=None, help="Single messages."
)

ProducerTopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        help="Needed for ids that producers made.",
        autocompletion=completion.topics,
    ),
]
StoredFromOption = Annotated[
    str | None, typer.Option("--from", help="Stored then or later: 2026-01-31T12:00.")
]
StoredToOption = Annotated[str | None, typer.Option("--to", help="Stored before then.")]


@app.command()
def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Of either kind.")],
    *,
    topic: ProducerTopicOption = None,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show the message of an id, with all its properties and its body."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_show(namesrv, message_id, topic, json=json))


@app.command()
def find(
    topic: TopicArgument,
    *,
    key: Annotated[str | None, typer.Option(help="With this key.")] = None,
    begin: StoredFromOption = None,
    end: StoredToOption = None,
    count: Annotated[
        int, typer.Option(min=1, help="At most so many: the newest with --key, else the oldest.")
    ] = 64,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Find a topic's messages by key, by time, or by both."""
    runtime.log_to_stderr(verbose=False)
    span = (
        output.parse_time_ms(begin, "--from") if begin else 0,
        output.parse_time_ms(end, "--to") if end else 2**63 - 1,
    )
    if key is None:
        runtime.run(_by_time(namesrv, topic, span, count, json=json))
    else:
        runtime.run(_by_key(namesrv, topic, key, span, count, json=json))


@app.command()
def at(
    topic: TopicArgument,
    broker: BrokerArgument,
    queue: Annotated[int, typer.Argument(help="The queue's id.")],
    offset: Annotated[int, typer.Argument(help="The message's offset.")],
    *,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show the message at an offset of a queue."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_at(namesrv, MessageQueue(topic, broker, queue), offset, json=json))


async def _show(namesrv: str | None, message_id: str, topic: str | None, *, json: bool) -> None:
    from roquet.admin import messages
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        matches = await messages.by_id(admin, message_id.upper(), topic)
    _print_messages(matches, f"no message {message_id}", whole=True, json=json)


async def _by_key(
    namesrv: str | None,
    topic: str,
    key: str,
    span: tuple[int, int],
    count: int,
    *,
    json: bool,
) -> None:
    from roquet.admin import messages
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        matches = await messages.by_key(
            admin, topic, key, begin_ms=span[0], end_ms=span[1], count=count + 1
        )
    _print_messages(matches[-count:], f"no message of {topic} with key {key!r}", json=json)
    _print_left_out(len(matches), count, "newest")


async def _by_time(
    namesrv: str | None, topic: str, span: tuple[int, int], count: int, *, json: bool
) -> None:
    from roquet.admin import messages

    async with messages.MessageViewer(namesrv_addresses(namesrv), group=CLI_GROUP) as reader:
        bodies = messages.BodyLimit()
        each = messages.by_time(reader, topic, *span, each=count + 1)
        matches = [bodies.cut(message) async for message in each]
    matches.sort(key=lambda message: message.stored_ms)
    _print_messages(matches[:count], f"no message of {topic} from that time", json=json)
    _print_left_out(len(matches), count, "oldest")


async def _at(namesrv: str | None, queue: MessageQueue, offset: int, *, json: bool) -> None:
    from roquet.admin import messages
    from roquet.model.errors import UsageError

    async with messages.MessageViewer(namesrv_addresses(namesrv), group=CLI_GROUP) as reader:
        if queue not in await messages.queues(reader, queue.topic):
            raise UsageError(f"there is no queue {queue}")
        message = await messages.by_offset(reader, queue, offset)
    _print_messages([message] if message else [], f"no message at {offset}", whole=True, json=json)


def _print_messages(
    messages: "Iterable[StoredMessage]", nothing: str, *, json: bool, whole: bool = False
) -> None:
    """Print messages; without any, print `nothing` and end with code 1."""
    is_empty = True
    for message in messages:
        is_empty = False
        if json:
            output.echo_json([{**output.message_fields(message), **_host_fields(message)}])
        elif whole:
            _print_whole(message)
        else:
            output.echo(_line(message))
    if is_empty:
        output.echo(nothing, err=True)
        sys.exit(FAILED)


def _print_left_out(found: int, count: int, which: str) -> None:
    """Say that there are more messages than were asked for."""
    if found > count:
        output.echo(f"the {which} {count:,} of at least {found:,}; --count shows more", err=True)


def _line(message: "StoredMessage") -> str:
    place = f"{message.broker_name}:{message.queue_id}:{message.queue_offset}"
    key = " ".join(message.keys) or "-"
    return (
        f"{message.message_id}  {output.time_text(message.stored_ms)}  {place}"
        f"  tag {message.tag or '-'}  key {key}  {output.one_line(message.body, PREVIEW_MAX)}"
        f"{message.body_note and f'  ({message.body_note})'}"
    )


def _print_whole(message: "StoredMessage") -> None:
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
        output.echo(f"{name + ':':13} {value}")
    for name, value in sorted(message.properties.items()):
        output.echo(f"  {name} = {output.one_line(value.encode(), 2_000)}")
    output.echo()
    output.echo_lines(message.body.decode("utf-8", "replace"), indent="  ")
    if message.body_note:
        output.echo(f"({message.body_note})")


def _host_fields(message: "StoredMessage") -> dict[str, str]:
    """More fields for JSON: the broker's id and the hosts."""
    return {
        "offset_message_id": message.offset_message_id,
        "born_host": message.born_host,
        "store_host": message.store_host,
    }
