"""roquet produce: sends messages from options, a file or the lines of stdin, in their order."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from roquet.cli.command_options import option
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import TopicArgument
from roquet.client.config import BATCH_BYTES_MAX
from roquet.client.connection.threads import run_in_thread
from roquet.client.producer import Producer
from roquet.client.sending.delivery import RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX
from roquet.model.errors import CallError, MessageIllegal, RoquetError, UsageError
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.model.settings import parse_millis
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.backoff import backoff_ms
from roquet.rules.send_retry import is_retryable

STDIN_CHUNK: Final = 64 * 1024
"""Most bytes of stdin that are read at a time."""

BATCH_LINES_MAX: Final = 250
"""Most lines that are sent at once: few enough that batches spread over the queues."""


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
    priority: int | None = option("Higher ones are popped first.", min=0),
    delay: str | None = option("Deliver it so much later: 10s, 2h.", metavar="TIME"),
    file: Path | None = option("The whole file is the message.", "-f"),
    count: int = option("How often to send --body or --file.", default=1, min=1),
    from_line: int = option("Leave out the lines before this one.", default=1, min=1),
    retry_for: str = option(
        "Try again for so long when brokers refuse or are away.", default="0s", metavar="TIME"
    ),
    quiet: bool = option("Print no receipts.", "-q"),
) -> None:
    """Send messages; each receipt is printed: id, queue, offset.

    Without --body and --file each line of stdin is one; empty lines are counted and left out. What
    is sent is always the first part: an error says from which line to go on.
    """
    if body is not None and file is not None:
        raise UsageError("--body or --file: a message has one body")
    fields: dict[str, Any] = {"tag": tag, "keys": tuple(key or ()), "order_key": order_key}
    fields["priority"] = priority
    fields["properties"] = dict(map(_property, properties or ()))
    if delay is not None:
        fields["delay"] = timedelta(milliseconds=parse_millis(delay, "--delay"))
    data = _read(file) if file is not None else body if body is None else os.fsencode(body)
    if data is None:
        lines = _stdin_batches(Message(topic, b"", **fields), from_line)
    elif from_line > 1:
        raise UsageError("--from-line is one of stdin: --body and --file are one message")
    else:
        lines = _repeated(Message(topic, data, **fields), count)
    retry_ms = parse_millis(retry_for, "--retry-for")
    show = _no_receipt if quiet else _show_receipt_json if as_json else _show_receipt
    rest = _rest_of_lines if data is None else lambda _, sent, __: _rest_of_count(count, sent)
    try:
        runtime.run(_produce(namesrv, lines, retry_ms, show, rest))
    except _Stopped as stopped:
        if data is not None and isinstance(stopped.__cause__, MessageIllegal):
            raise UsageError(str(stopped.__cause__)) from stopped  # one that the options describe
        raise


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"--file {file}: {error.strerror}") from None


class _Stopped(RoquetError):
    """The error of a send, and what was sent before it."""

    def __init__(self, error: CallError | MessageIllegal, rest: str) -> None:
        doubt = isinstance(error, CallError) and not error.definite
        note = "\nwhether it was stored is not known: it may come twice" if doubt else ""
        super().__init__(f"{error}\n{rest}{note}")
        for known in getattr(error, "__notes__", ()):
            self.add_note(known)


class NumberedMessage(NamedTuple):
    """A message to send, and the number of its line: 1 is the first."""

    message: Message
    line: int


RestText = Callable[[Exception, int, Sequence[NumberedMessage]], str]
"""Says what is left: from an error, the number of messages that were sent and those that failed."""


async def _produce(
    namesrv: str,
    batches: AsyncIterator[Sequence[NumberedMessage]],
    retry_ms: int,
    show: Callable[[SendReceipt], None],
    rest: RestText,
) -> None:
    """Send batches one after the other, so that what is stored is always the first part."""
    sent = 0
    async with Producer(namesrv) as producer:
        async for batch in batches:
            for part in [batch] if _fits_a_batch(batch) else [[one] for one in batch]:
                try:
                    receipts = await _send(producer, [one.message for one in part], retry_ms)
                except (CallError, MessageIllegal) as error:
                    raise _Stopped(error, rest(error, sent, part)) from error
                for receipt in receipts:
                    show(receipt)
                sent += len(part)


def _fits_a_batch(batch: Sequence[NumberedMessage]) -> bool:
    """Whether these can be sent at once; else each alone, so that an error is one line's."""
    first = batch[0].message
    beside = len(f"{first.tag}{first.keys}{first.properties}")  # of each
    size = sum(len(one.message.body) + beside for one in batch)
    return first.delay is None and size <= BATCH_BYTES_MAX


async def _send(
    producer: Producer, messages: Sequence[Message], retry_ms: int
) -> Sequence[SendReceipt]:
    """Send messages to one queue, all or none; a failure is tried again for a time."""
    pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
    deadline_ms = SYSTEM_CLOCK.monotonic_ms() + retry_ms
    while True:
        try:
            if len(messages) == 1:
                return [await producer.send(messages[0])]
            return [*_receipts(await producer.send_batch(messages))]
        except CallError as error:
            left_ms = deadline_ms - SYSTEM_CLOCK.monotonic_ms()
            if left_ms <= 0 or not is_retryable(error):
                raise
        await SYSTEM_CLOCK.sleep(min(next(pauses_ms), left_ms))


def _rest_of_lines(error: Exception, sent: int, part: Sequence[NumberedMessage]) -> str:
    first, last = part[0].line, part[-1].line
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    hint = f", or with {last + 1} to leave it out" if isinstance(error, MessageIllegal) else ""
    done = f"{output.quantity(sent, 'message')} sent, not {where}"
    return f"{done}: go on with --from-line {first}{hint}"


def _rest_of_count(count: int, sent: int) -> str:
    return f"{sent:,} of {output.quantity(count, 'message')} sent"


def _receipts(joined: SendReceipt) -> Iterator[SendReceipt]:
    """The receipt of each message of a batch, which has one for all: offsets follow each other."""
    ids = zip(joined.message_id.split(","), joined.offset_message_id.split(","), strict=True)
    for number, (message_id, offset_message_id) in enumerate(ids):
        yield replace(
            joined,
            message_id=message_id,
            offset_message_id=offset_message_id,
            queue_offset=joined.queue_offset + number,
        )


def _no_receipt(receipt: SendReceipt) -> None:
    pass


def _show_receipt_json(receipt: SendReceipt) -> None:
    output.echo_json([_receipt_fields(receipt)])


def _show_receipt(receipt: SendReceipt) -> None:
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


async def _repeated(message: Message, count: int) -> AsyncIterator[Sequence[NumberedMessage]]:
    for start in range(1, count + 1, BATCH_LINES_MAX):
        end = min(start + BATCH_LINES_MAX, count + 1)
        yield [NumberedMessage(message, number) for number in range(start, end)]


async def _stdin_batches(
    example: Message, from_line: int
) -> AsyncIterator[Sequence[NumberedMessage]]:
    """A message for each line of stdin; empty lines are skipped, and counted on stderr."""
    empty = number = 0
    async for lines in stdin_reads():
        batch: list[NumberedMessage] = []
        for line, is_whole in lines:
            number += 1
            if number < from_line:
                continue
            if text := line.rstrip(b"\r\n"):
                batch.append(NumberedMessage(replace(example, body=text), number))
            else:
                empty += is_whole
            if len(batch) == BATCH_LINES_MAX:
                yield batch
                batch = []
        if batch:
            yield batch
    if empty:
        output.echo(
            f"{output.quantity(empty, 'empty line')} not sent: no message is empty", err=True
        )


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--property {text!r}: NAME=VALUE is wanted")
    return name, value


async def stdin_reads() -> AsyncIterator[Sequence[tuple[bytes, bool]]]:
    """Lines of stdin as (line, whether a line break ended it), as many as are there at a time.

    Ctrl-C works meanwhile, since nothing waits for the thread that reads. The thread reads the file
    below sys.stdin: Python crashes at its end while a thread holds the lock of sys.stdin.
    """
    if sys.stdin.isatty():
        output.echo("each line that you type is a message (Ctrl-D ends)", err=True)
    file = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    rest = b""
    while chunk := await run_in_thread(partial(file.read, STDIN_CHUNK), "roquet-stdin"):
        *lines, rest = (rest + chunk).split(b"\n")
        yield [(line, True) for line in lines]
    yield [(rest, False)]
