"""Receipt handle: the text by which a popped message is acknowledged, or kept for longer.

    start popTime invisibleTime reviveQueue retry broker queueId offset

`retry` names the topic: 0 the one asked for, 1 its retry topic, 2 its retry topic with the newer
name. The header of a pop's reply names the queues that were popped:

    starts     retry queueId start; …
    offsets    retry queueId offset,offset,…; …
    counts     retry queueId count; retry qo<queueId>%<offset> count; …
"""

import binascii
import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final

import msgspec

from roquet.model.errors import FieldError
from roquet.model.names import is_retry, pop_retry_topic, pop_retry_topic_v1

ORDER_QUEUE: Final = 999
"""Revive queue of ordered pops, which are recorded elsewhere."""

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

LONG_MAX: Final = 2**63 - 1

_NUMBER: Final = re.compile("[0-9]{1,19}")


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """Receipt of a popped message, to acknowledge it or change its invisible time."""

    start: int
    """First offset of the pop."""
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker: str
    queue_id: int
    offset: int

    def text(self) -> str:
        """The handle as text."""
        return (
            f"{self.start} {self.pop_ms} {self.invisible_ms} {self.revive_queue} {self.retry} "
            f"{self.broker} {self.queue_id} {self.offset}"
        )


def decode_receipt_handle(text: str) -> ReceiptHandle:
    """Decode a receipt handle; raises FieldError for anything else.

    Apache's proxy adds the record's position in the commit log, which Apache's broker does not
    read. A handle of a broker whose name ends with a space and a number looks the same.
    """
    fields = text.split(" ")
    if len(fields) == 9 and all(map(_NUMBER.fullmatch, fields[6:])):
        del fields[8]
    if len(fields) < 8:
        raise FieldError(f"a receipt handle has 8 fields, not {len(fields)}: {text[:80]!r}")
    start, pop_ms, invisible_ms, revive_queue, retry, *broker, queue_id, offset = fields
    if retry not in (NORMAL, RETRY_V1, RETRY_V2):
        raise FieldError(f"a receipt handle names topic kind {retry[:20]!r}: {text[:80]!r}")
    return ReceiptHandle(
        _number(start, text),
        _number(pop_ms, text),
        _number(invisible_ms, text),
        _number(revive_queue, text),
        retry,
        " ".join(broker),
        _number(queue_id, text),
        _number(offset, text),
    )


def _number(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(field) or (number := int(field)) > LONG_MAX:
        raise FieldError(f"a receipt handle holds {field[:20]!r}, not a number: {text[:80]!r}")
    return number


def retry_kind(topic: str) -> str:
    """Kind of a topic in handles and replies."""
    if not is_retry(topic):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def stored_topic(topic: str, group: str, retry: str) -> str:
    """Topic that holds a message, from the topic asked for and the kind in the handle."""
    if retry == NORMAL or is_retry(topic):
        return topic
    name = pop_retry_topic if retry == RETRY_V2 else pop_retry_topic_v1
    return name(group, topic)


def start_info(topic: str, queue_id: int, start: int) -> str:
    """Start offset of the pop of one queue."""
    return f"{retry_kind(topic)} {queue_id} {start}"


def offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """Offsets that a pop delivered from one queue."""
    return f"{retry_kind(topic)} {queue_id} {','.join(map(str, offsets))}"


def queue_count_info(topic: str, queue_id: int, count: int) -> str:
    """Number of earlier deliveries of a queue's messages, if it is equal for all."""
    return f"{retry_kind(topic)} {queue_id} {count}"


def offset_count_info(topic: str, queue_id: int, offset: int, count: int) -> str:
    """Number of earlier deliveries of one message."""
    return f"{retry_kind(topic)} qo{queue_id}%{offset} {count}"


def parse_starts(text: str) -> dict[str, int]:
    """Start offset of each pop of a reply, by `retry@queueId`; also reads counts."""
    return {key: _count(value, text) for key, value in _entries(text)}


def parse_offsets(text: str) -> dict[str, list[int]]:
    """Offsets that each pop of a reply delivered, by `retry@queueId`."""
    return {key: [_count(n, text) for n in value.split(",")] for key, value in _entries(text)}


def _entries(text: str) -> Iterable[tuple[str, str]]:
    for entry in text.split(";"):
        fields = entry.split(" ")
        if len(fields) != 3:
            raise FieldError(f"{entry[:80]!r} is not kind, queue and offset")
        yield f"{fields[0]}@{fields[1]}", fields[2]


def _count(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(field):
        raise FieldError(f"{field[:20]!r} is not an offset: {text[:80]!r}")
    return int(field)


VERSION: Final = "v1"

TAG: Final = "_RECALL_TAG_"
"""Tag of the message that cancels another one."""

_LONG_DIGITS_MAX: Final = 19


class RecallHandle(msgspec.Struct, frozen=True):
    """The timer message to cancel, its broker and its delivery time.

    As text: v1 topic broker deliverMs uniqueKey, in base64 with - and _ for + and /.
    """

    topic: str
    broker: str
    deliver_ms: int
    """-1 for a text that is not a number."""
    unique_key: str

    def text(self) -> str:
        """The handle as text."""
        plain = f"{VERSION} {self.topic} {self.broker} {self.deliver_ms} {self.unique_key}"
        return urlsafe_b64encode(plain.encode("utf-8", "surrogatepass")).decode("ascii")


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a recall handle; raises FieldError for anything else."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        plain = b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (UnicodeError, binascii.Error):
        raise FieldError("recall handle is invalid") from None
    fields = plain.split(" ")
    if fields[0] != VERSION or len(fields) < 5:
        raise FieldError("recall handle is invalid")
    _, topic, broker, time, key = fields[:5]
    is_number = time.isascii() and time.isdecimal() and len(time) <= _LONG_DIGITS_MAX
    return RecallHandle(topic, broker, int(time) if is_number else -1, key)
