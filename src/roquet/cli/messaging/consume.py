"""roquet consume: prints a topic's messages as they come."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.cli.command_options import option
from roquet.cli.messaging.message_format import LINE_SIZE_MAX, MessageFormat
from roquet.cli.process.runtime import until_stopped
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import TopicArgument
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.consumer import Consumer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import InboundMessage
from roquet.model.errors import RoquetError, UsageError
from roquet.model.names import CLI_GROUP
from roquet.model.settings import suggest

TOPIC_POLL_S: Final = 1.0
"""How often a topic is looked for that does not exist yet."""


async def consume(  # noqa: PLR0913 - each is an option
    namesrv: str,
    topic: TopicArgument,
    *,
    group: str | None = option("Share the messages with this group, and save its progress."),
    begin: str = option(
        "first, last or a time like 2026-01-31T12:00; progress of --group wins.",
        "--from",
        default="first",
    ),
    count: int | None = option("Stop after so many.", min=1),
    tags: str = option("Only these: 'A || B'.", default="*"),
    sql: str | None = option('Only those with such properties: "amount > 5".'),
    json: bool = option("One JSON object a line."),
    raw: bool = option("Bodies as they are, for a file or a program."),
    line_format: str | None = option(
        "A line for each: '{offset} {body}', of the fields of --json.",
        "--format",
        metavar="TEXT",
    ),
) -> None:
    """Print a topic's messages as they come, until Ctrl-C.

    A body is one line, of its first MiB; what does not print, line breaks among it, is shown as an
    escape. --json and --raw show all of it.
    """
    if raw + json + (line_format is not None) > 1:
        raise UsageError("--raw or --json or --format: bodies alone, all that is known, or a line")
    show = _show_json if json else _show_raw if raw else _show_text
    if line_format is not None:
        show = partial(_show_formatted, MessageFormat(line_format))
    config = _consumer_config(begin)
    wanted: dict[str, Any] = {"tags": tags, "sql": sql}
    if group is not None:
        member = PushConsumer(namesrv, group=group, topic=topic, config=config, **wanted)
        await _check_readable(namesrv, topic)
        async with member:
            await until_stopped(_print(member, show, count))
        return
    await _check_readable(namesrv, topic)
    async with PullConsumer(namesrv, group=CLI_GROUP, config=config) as reader:
        printing = partial(_print, show=show, count=count)
        await until_stopped(_read(reader, topic, wanted, config, printing))


async def _check_readable(addresses: str, topic: str) -> None:
    """Print a note if the topic does not exist. Raises RoquetError if it cannot be read."""
    async with AdminClient(addresses) as admin:
        route = await admin.route(topic)
        if route is None:
            others = set(await topics.list_names(admin)) - {topic}  # it may be there by now
            hint = suggest(topic, others)
            waiting = f"waiting for the first message of {topic} (Ctrl-C stops){hint}"
            output.echo(waiting, err=True)
    if route is not None and not route.read_queues(topic):
        raise RoquetError(
            f"no broker lets topic {topic!r} be read: `roquet topic update {topic} --perm RW` does"
        )


async def _read(
    reader: Any,
    topic: str,
    wanted: dict[str, Any],
    config: ConsumerConfig,
    printing: Callable[[Consumer[Any]], Awaitable[None]],
) -> None:
    """Print all queues of the topic; waits for a topic that does not exist yet."""
    waited = False
    while not (queues := await reader.queues(topic)):
        waited = True
        await asyncio.sleep(TOPIC_POLL_S)
    await reader.assign(queues, **wanted)
    if not waited:  # all messages of a topic that was created meanwhile are new
        await _seek(reader, config)
    await printing(reader)


async def _seek(reader: Any, config: ConsumerConfig) -> None:
    """Seek to where --from says: brokers answer 0 for a young queue without committed offset."""
    for queue in reader.assignment():
        if config.consume_from is ConsumeFrom.LAST:
            await reader.seek_to_end(queue)
        elif config.consume_from is ConsumeFrom.TIMESTAMP:
            await reader.seek_to_time(queue, config.consume_timestamp_ms)


async def _print(
    consumer: Consumer[Any], show: Callable[[InboundMessage], None], count: int | None
) -> None:
    """Print and acknowledge messages, `count` at most; None is no limit."""
    printed = 0
    async for message in consumer.messages():
        try:
            show(message)
        except BrokenPipeError:
            raise
        except OSError as error:
            place = f"{message.queue} offset {message.queue_offset}"
            raise RoquetError(
                f"{error.strerror}: {output.quantity(printed, 'message')} printed, "
                f"the one at {place} not whole; it is not acknowledged"
            ) from error
        await message.ack()
        printed += 1
        if printed == count:
            return


def _show_text(message: InboundMessage) -> None:
    body = message.body
    output.echo(body[:LINE_SIZE_MAX].decode("utf-8", "replace"))
    if len(body) > LINE_SIZE_MAX:
        whole = f"the first {LINE_SIZE_MAX:,} of {len(body):,} bytes; --json and --raw show all"
        output.echo(f"{message.message_id}: {whole}", err=True)


def _show_raw(message: InboundMessage) -> None:
    output.echo_raw(message.body)


def _show_formatted(line_format: MessageFormat, message: InboundMessage) -> None:
    output.write_line(line_format.line(message))


def _show_json(message: InboundMessage) -> None:
    output.echo_json([output.message_fields(message)])


def _consumer_config(text: str) -> ConsumerConfig:
    if text in {"first", "last"}:
        return ConsumerConfig(consume_from=ConsumeFrom(text))
    since_ms = output.parse_time_ms(text, "--from", output.EDGE_HINT)
    return ConsumerConfig(consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp_ms=since_ms)
