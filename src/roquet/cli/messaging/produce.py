"""roquet produce: sends messages from options, a file or stdin."""

import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from roquet.cli.command_options import option
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import TopicArgument
from roquet.client.connection.threads import run_in_thread
from roquet.client.producer import Producer
from roquet.model.errors import MessageIllegal, UsageError
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.model.settings import parse_millis

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
