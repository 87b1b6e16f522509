"""Pop in words: receipt handles, what a reply's messages are, the notes of the revive topic.

    POP_CK     start popTime invisibleTime reviveQueue retry broker queueId offset
    starts     retry queueId start; …
    offsets    retry queueId offset,offset,…; …
    counts     retry queueId count; retry qo<queueId>%<offset> count; …

`retry` says from which topic: 0 the one asked for, 1 its retry topic, 2 the same in the newer form.
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
"""The revive queue that ordered pops name: they are noted elsewhere."""

NORMAL: Final = "0"
RETRY: Final = "1"
RETRY_V2: Final = "2"

LONG_MAX: Final = 2**63 - 1

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
TAG_CODES: Final = {hash_code(tag): tag for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)}
"""The kinds of records of the revive topic, by the tag codes of their queue entries."""

_NUMBER: Final = re.compile("[0-9]{1,19}")


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """A receipt handle: what a client shows to acknowledge a message, or to change its time."""

    start: int
    """Where the pop began that gave the message out."""
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker: str
    queue_id: int
    offset: int

    def text(self) -> str:
        """As it travels."""
        return (
            f"{self.start} {self.pop_ms} {self.invisible_ms} {self.revive_queue} {self.retry} "
            f"{self.broker} {self.queue_id} {self.offset}"
        )


def decode_receipt_handle(text: str) -> ReceiptHandle:
    """The handle that a text holds; FieldError when it is none."""
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
        raise FieldError(f"a receipt handle holds {field[:20]!r}, no number: {text[:80]!r}")
    return number


def retry_kind(topic: str) -> str:
    """What kind of topic this is, as handles and replies say it."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY


def stored_topic(topic: str, group: str, retry: str) -> str:
    """The topic that a message lies in, by the one that was asked for."""
    if retry == NORMAL or topic.startswith(RETRY_PREFIX):
        return topic
    return f"{RETRY_PREFIX}{group}{'+' if retry == RETRY_V2 else '_'}{topic}"


def start_info(topic: str, queue_id: int, start: int) -> str:
    """Where the pop of one queue began."""
    return f"{retry_kind(topic)} {queue_id} {start}"


def offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """Which messages of one queue a pop gave out."""
    return f"{retry_kind(topic)} {queue_id} {','.join(map(str, offsets))}"


def queue_count_info(topic: str, queue_id: int, count: int) -> str:
    """How often the messages of a queue were given out before, when that is the same for all."""
    return f"{retry_kind(topic)} {queue_id} {count}"


def offset_count_info(topic: str, queue_id: int, offset: int, count: int) -> str:
    """How often one message was given out before."""
    return f"{retry_kind(topic)} qo{queue_id}%{offset} {count}"


def parse_starts(text: str) -> dict[str, int]:
    """Where each pop of a reply began, by `retry@queueId`; counts are read the same way."""
    return {key: _count(value, text) for key, value in _pieces(text)}


def parse_offsets(text: str) -> dict[str, list[int]]:
    """Which messages each pop of a reply gave out."""
    return {key: [_count(one, text) for one in value.split(",")] for key, value in _pieces(text)}


def _pieces(text: str) -> Iterable[tuple[str, str]]:
    for piece in text.split(";"):
        fields = piece.split(" ")
        if len(fields) != 3:
            raise FieldError(f"{piece[:80]!r} is not kind, queue and offset")
        yield f"{fields[0]}@{fields[1]}", fields[2]


def _count(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(field):
        raise FieldError(f"{field[:20]!r} is no offset: {text[:80]!r}")
    return int(field)


class CheckpointBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was given out (Java's PopCheckPoint): fields by alphabet, as Java writes them."""

    acked: int = msgspec.field(default=0, name="bm")
    """Bit n: the n-th message is acknowledged."""
    broker: str | None = msgspec.field(default=None, name="bn")
    group: str = msgspec.field(name="c")
    steps: list[int] | None = msgspec.field(default=None, name="d")
    """Of each message from `start` on; older brokers leave it out when there is none between."""
    invisible_ms: int = msgspec.field(name="it")
    count: int = msgspec.field(name="n")
    pop_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    revive_offset: int = msgspec.field(default=0, name="ro")
    put_times: str | None = msgspec.field(default=None, name="rp")
    start: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    def offsets(self) -> Sequence[int]:
        """Of the messages."""
        if self.steps:
            return [self.start + step for step in self.steps]
        return range(self.start, self.start + self.count)


class AckBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was acknowledged (Java's AckMsg, BatchAckMsg)."""

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
    """The checkpoint of a record; FieldError when it is none that makes sense."""
    try:
        found = _CHECKPOINT.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError(f"no checkpoint: {error}") from error
    steps = found.steps or ()
    if (
        not 0 <= found.start <= LONG_MAX
        or not 0 < found.count <= COUNT_MAX
        or (steps and (len(steps) != found.count or not 0 <= min(steps) <= max(steps) <= STEP_MAX))
        or not 0 < found.invisible_ms <= LONG_MAX
        or not 0 <= found.pop_ms <= LONG_MAX
        or found.queue_id < 0
    ):
        raise FieldError(f"a checkpoint that cannot be: {body[:200]!r}")
    return found


def decode_ack(body: bytes) -> AckBody:
    """The acknowledgement of a record; FieldError when it is none."""
    try:
        return _ACK.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError(f"no acknowledgement: {error}") from error


COUNT_MAX: Final = 4_096
STEP_MAX: Final = 65_536
"""Of one checkpoint: far more than a pop gives out, little enough to be kept as bits."""


def revive_properties(tag: str, now_ms: int) -> bytes:
    """The properties of a record of the revive topic.

    The time is the one that the genuine broker takes the topic to have come to, when it reads it.
    """
    return f"{names.TAGS}\x01{tag}\x02{names.TIMER_DELIVER_MS}\x01{now_ms}\x02".encode()
