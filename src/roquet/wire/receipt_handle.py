"""Texts of pop: receipt handles, offsets in a reply's header, records of the revive topic.

    POP_CK     start popTime invisibleTime reviveQueue retry broker queueId offset
    starts     retry queueId start; …
    offsets    retry queueId offset,offset,…; …
    counts     retry queueId count; retry qo<queueId>%<offset> count; …

`retry` names the topic: 0 the one asked for, 1 its retry topic, 2 its retry topic with the newer
name.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roquet.model import properties as names
from roquet.model.errors import FieldError
from roquet.model.names import RETRY_PREFIX
from roquet.wire.java_hash import hash_code

ORDER_QUEUE: Final = 999
"""Revive queue of ordered pops, which are recorded elsewhere."""

NORMAL: Final = "0"
RETRY: Final = "1"
RETRY_V2: Final = "2"

LONG_MAX: Final = 2**63 - 1

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
TAG_CODES: Final = {hash_code(tag): tag for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)}
"""Kinds of records of the revive topic, by the tag codes of their queue entries."""

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
    """Decode a receipt handle; raises FieldError for anything else."""
    fields = text.split(" ")
    if len(fields) < 8:
        raise FieldError(f"a receipt handle has 8 fields, not {len(fields)}: {text[:80]!r}")
    start, pop_ms, invisible_ms, revive_queue, retry, *broker, queue_id, offset = fields
    if retry not in (NORMAL, RETRY, RETRY_V2):
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
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY


def stored_topic(topic: str, group: str, retry: str) -> str:
    """Topic that holds a message, from the topic asked for and the kind in the handle."""
    if retry == NORMAL or topic.startswith(RETRY_PREFIX):
        return topic
    return f"{RETRY_PREFIX}{group}{'+' if retry == RETRY_V2 else '_'}{topic}"


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


class CheckpointBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages that a pop delivered (Java's PopCheckPoint), with fields sorted as in Java."""

    acked: int = msgspec.field(default=0, name="bm")
    """Bit n: the n-th message is acknowledged."""
    broker: str | None = msgspec.field(default=None, name="bn")
    group: str = msgspec.field(name="c")
    steps: list[int] | None = msgspec.field(default=None, name="d")
    """Distances of the messages from `start`; older brokers leave it out if they are
    consecutive."""
    invisible_ms: int = msgspec.field(name="it")
    count: int = msgspec.field(name="n")
    pop_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    revive_offset: int = msgspec.field(default=0, name="ro")
    put_times: str | None = msgspec.field(default=None, name="rp")
    start: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    def offsets(self) -> Sequence[int]:
        """Offsets of the messages."""
        if self.steps:
            return [self.start + step for step in self.steps]
        return range(self.start, self.start + self.count)


class AckBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Acknowledged messages (Java's AckMsg, BatchAckMsg)."""

    offset: int | None = msgspec.field(default=None, name="ao")
    offsets: list[int] | None = msgspec.field(default=None, name="aol")
    broker: str | None = msgspec.field(default=None, name="bn")
    group: str = msgspec.field(name="c")
    pop_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    start: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")


_ENCODER: Final = msgspec.json.Encoder()
_CHECKPOINT: Final = msgspec.json.Decoder(CheckpointBody, strict=False)
_ACK: Final = msgspec.json.Decoder(AckBody, strict=False)

encode_body = _ENCODER.encode


def decode_checkpoint(body: bytes) -> CheckpointBody:
    """Decode a checkpoint record; raises FieldError if it is malformed or makes no sense."""
    try:
        checkpoint = _CHECKPOINT.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError(f"not a checkpoint: {error}") from error
    steps, count = checkpoint.steps or (), checkpoint.count
    if (
        not 0 <= checkpoint.start <= LONG_MAX
        or not 0 < count <= COUNT_MAX
        or (steps and (len(steps) != count or not 0 <= min(steps) <= max(steps) <= STEP_MAX))
        or not 0 < checkpoint.invisible_ms <= LONG_MAX
        or not 0 <= checkpoint.pop_ms <= LONG_MAX
        or checkpoint.queue_id < 0
    ):
        raise FieldError(f"an impossible checkpoint: {body[:200]!r}")
    return checkpoint


def decode_ack(body: bytes) -> AckBody:
    """Decode an acknowledgement record; raises FieldError for anything else."""
    try:
        return _ACK.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError(f"not an acknowledgement: {error}") from error


COUNT_MAX: Final = 4_096
STEP_MAX: Final = 65_536
"""Limits of one checkpoint: far more than a pop delivers, few enough to be kept as bits."""


def revive_properties(tag: str, now_ms: int) -> bytes:
    """Properties of a record of the revive topic.

    Apache's broker takes the time for the one that the topic has reached, when it reads the record.
    """
    return f"{names.TAGS}\x01{tag}\x02{names.TIMER_DELIVER_MS}\x01{now_ms}\x02".encode()
