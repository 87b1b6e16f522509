"""roquet produce, consume: sends messages from options, a file or stdin; prints a topic's."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.cli.command_options import option
from roquet.cli.messaging.message_format import LINE_SIZE_MAX, MessageFormat
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import TopicArgument
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.connection.threads import run_in_thread
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import InboundMessage
from roquet.model.errors import MessageIllegal, RoquetError, UsageError
from roquet.model.message import Message
from roquet.model.names import CLI_GROUP
from roquet.model.results import SendReceipt
from roquet.model.settings import parse_millis, suggest

STDIN_CHUNK: Final = 64 * 1024
"""Most bytes of stdin that are read at a time."""


def produce(  # noqa: PLR0913 - each is an option
    namesrv: str,
    as_json: bool,
    topic: TopicArgument,
    *,
    body: str | None = option("The message; else each line of stdin is.", "-m"),
    key: list[str] | None = option("To find it by; may be repeated."),
    tag: str | None = option("To filter by."),
    order_key: str | None = option("Equal ones stay in order."),
    properties: list[str] | None = option(
        "A property; may be repeated.", "--property", metavar="NAME=VALUE"
    ),
    delay: str | None = option("Deliver it so much later: 10s, 2h.", metavar="TIME"),
    file: Path | None = option("The whole file is the message.", "-f"),
    count: int = option("How often to send --body or --file.", default=1, min=1),
    quiet: bool = option("Print no receipts.", "-q"),
) -> None:
    """Send messages; each receipt is printed: id, queue, offset.

    Without --body and --file each line of stdin is one; empty lines are counted and left out.
    """
    if body is not None and file is not None:
        raise UsageError("--body or --file: a message has one body")
    fields: dict[str, Any] = {"tag": tag, "keys": tuple(key or ()), "order_key": order_key}
    fields["properties"] = dict(map(_property, properties or ()))
    if delay is not None:
        fields["delay"] = timedelta(milliseconds=parse_millis(delay, "--delay"))
    data = file.read_bytes() if file is not None else body if body is None else body.encode()
    if data is None:
        messages = _stdin_messages(topic, fields)
        runtime.run(_produce(namesrv, messages, quiet=quiet, as_json=as_json))
        return
    message = Message(topic, data, **fields)
    try:
        runtime.run(_produce(namesrv, _repeat(message, count), quiet=quiet, as_json=as_json))
    except MessageIllegal as error:  # one that the options describe
        raise UsageError(str(error)) from error


async def _produce(
    namesrv: str, messages: AsyncIterator[Message], *, quiet: bool, as_json: bool
) -> None:
    async with Producer(namesrv) as producer:
        async for receipt in producer.send_many(messages):
            if quiet:
                continue
            if as_json:
                output.echo_json([_receipt_fields(receipt)])
                continue
            queue = receipt.queue
            where = f"{queue.broker_name}:{queue.queue_id} offset {receipt.queue_offset}"
            status = "" if receipt.ok else f" {receipt.status.value}"
            output.echo(f"{receipt.message_id} {where}{status}")


def _receipt_fields(receipt: SendReceipt) -> dict[str, Any]:
    return {
        "topic": receipt.queue.topic,
        "broker": receipt.queue.broker_name,
        "queue": receipt.queue.queue_id,
        "offset": receipt.queue_offset,
        "message_id": receipt.message_id,
        "offset_message_id": receipt.offset_message_id,
        "status": receipt.status.value,
    }


async def _repeat(message: Message, count: int) -> AsyncIterator[Message]:
    for _ in range(count):
        yield message


async def _stdin_messages(topic: str, fields: dict[str, Any]) -> AsyncIterator[Message]:
    """A message for each line of stdin; empty lines are skipped, and counted on stderr."""
    empty = 0
    async for line, is_whole in stdin_lines():
        if text := line.rstrip(b"\r\n"):
            yield Message(topic, text, **fields)
        else:
            empty += is_whole
    if empty:
        output.echo(
            f"{output.quantity(empty, 'empty line')} not sent: no message is empty", err=True
        )


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--property {text!r}: NAME=VALUE is wanted")
    return name, value


async def stdin_lines() -> AsyncIterator[tuple[bytes, bool]]:
    """Lines of stdin as (line, whether a line break ended it).

    Ctrl-C works meanwhile, since nothing waits for the thread that reads. The thread reads the file
    below sys.stdin: Python crashes at its end while a thread holds the lock of sys.stdin.
    """
    file = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    rest = b""
    while chunk := await run_in_thread(partial(file.read, STDIN_CHUNK), "roquet-stdin"):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line, True
    yield rest, False


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
            await _until_stopped(_print(member, show, count))
        return
    await _check_readable(namesrv, topic)
    async with PullConsumer(namesrv, group=CLI_GROUP, config=config) as reader:
        printing = partial(_print, show=show, count=count)
        await _until_stopped(_read(reader, topic, wanted, config, printing))


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
    printing: Callable[[Consumer], Awaitable[None]],
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
    consumer: Consumer, show: Callable[[InboundMessage], None], count: int | None
) -> None:
    """Print and acknowledge messages, `count` at most; None is no limit."""
    printed = 0
    async for message in consumer.messages():
        show(message)
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
    output.echo_raw(line_format.line(message))


def _show_json(message: InboundMessage) -> None:
    output.echo_json([output.message_fields(message)])


async def _until_stopped(work: Any) -> None:
    task = asyncio.create_task(work)
    stop = asyncio.create_task(runtime.stop_signal().wait())
    await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _consumer_config(text: str) -> ConsumerConfig:
    if text in {"first", "last"}:
        return ConsumerConfig(consume_from=ConsumeFrom(text))
    since_ms = output.parse_time_ms(text, "--from", output.EDGE_HINT)
    return ConsumerConfig(consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp_ms=since_ms)
