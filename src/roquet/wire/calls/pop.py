"""Pop, ack, batch ack, change invisible time, notification, polling info, peek."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from contextlib import suppress
from typing import ClassVar, Final

import msgspec

from roquet.model.errors import FieldError
from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.request_body import decode_body

BITSET_SIZE_MAX: Final = 8_192
"""Bytes of one bit set of acknowledged messages: a pop delivers 32, spread out by a filter."""

ACKS_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a batch ack: one with 4,096 pops, each with a set of 32 messages, has 800,000."""

POP_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
    }
)

ACK_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})


class PopReply(Reply, frozen=True, kw_only=True):
    """Stored records, and the parts of their receipt handles."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class Pop(Call[PopReply], frozen=True, kw_only=True):
    """Get messages of a topic and make them invisible to others for a while."""

    code: ClassVar = RequestCode.POP_MESSAGE
    accepts: ClassVar = POP_ANSWERS

    consumer_group: str
    topic: str
    queue_id: Int = 0
    """-1 for any queue. A missing number is 0, as Java reads it, here and below."""
    max_msg_nums: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    """How long the broker may hold the request while there are no messages, in ms."""
    init_mode: Int = 0
    """Start of a new group: 0 with the oldest message, 1 with the next one."""
    born_time: Long = 0
    """Time of the request, in ms since 1970; 0 means now. The broker fills in a missing one."""
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class Peek(Call[PopReply], frozen=True, kw_only=True):
    """Get the messages that a pop would return, without taking them."""

    code: ClassVar = RequestCode.PEEK_MESSAGE
    accepts: ClassVar = POP_ANSWERS

    consumer_group: str
    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0


class Ack(Call[Reply], frozen=True, kw_only=True):
    """Acknowledge one popped message."""

    code: ClassVar = RequestCode.ACK_MESSAGE
    accepts: ClassVar = ACK_ANSWERS

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    """The receipt handle."""
    offset: Long


class BatchAck(Call[Reply], frozen=True, kw_only=True):
    """Acknowledge popped messages; the body is an AckBatch."""

    code: ClassVar = RequestCode.BATCH_ACK_MESSAGE
    accepts: ClassVar = ACK_ANSWERS


class ChangeInvisibleReply(Reply, frozen=True, kw_only=True):
    """Parts of the message's next receipt handle."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0


class ChangeInvisible(Call[ChangeInvisibleReply], frozen=True, kw_only=True):
    """Change when a popped message becomes visible again."""

    code: ClassVar = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    accepts: ClassVar = ACK_ANSWERS

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool | None = None
    """Whether the next delivery does not count as a try."""


class NotificationReply(Reply, frozen=True, kw_only=True):
    """Whether there is something to pop."""

    has_msg: bool = False
    polling_full: bool = False


class Notification(Call[NotificationReply], frozen=True, kw_only=True):
    """Ask whether there is something to pop, or wait for it."""

    code: ClassVar = RequestCode.NOTIFICATION

    consumer_group: str
    topic: str
    queue_id: Int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class PollingInfoReply(Reply, frozen=True, kw_only=True):
    """Number of a group's waiting pops."""

    polling_num: Int = 0


class PollingInfo(Call[PollingInfoReply], frozen=True, kw_only=True):
    """Get the number of a group's waiting pops."""

    code: ClassVar = RequestCode.POLLING_INFO

    consumer_group: str
    topic: str
    queue_id: Int = 0


class PopAck(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledged messages of one pop of one queue."""

    bits: str = msgspec.field(name="b")
    """Java's BitSet in base64: bit n is the message at offset `start + n`."""
    group: str = msgspec.field(name="c")
    invisible_ms: int = msgspec.field(name="it")
    pop_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    retry: str = msgspec.field(name="r")
    revive_queue: int = msgspec.field(name="rq")
    start: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")
    """The topic asked for; `retry` says whether its retry topic is meant."""


class AckBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a batch ack."""

    acks: list[PopAck] = []
    broker_name: str | None = msgspec.field(default=None, name="brokerName")


_SHORT: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}
"""Full names that some clients write."""


def encode_bits(bits: int) -> str:
    """Encode a bit set as Java's BitSet in base64."""
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


def decode_bits(text: str) -> int:
    """Decode a bit set; raises FieldError if it is malformed or too large."""
    try:
        raw = b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise FieldError(f"a bit set is not base64: {text[:40]!r}") from error
    if len(raw) > BITSET_SIZE_MAX:
        raise FieldError(f"a set of {len(raw)} bytes: {BITSET_SIZE_MAX} are allowed")
    return int.from_bytes(raw, "little")


def encode_acks(batch: AckBatch) -> bytes:
    """Encode the body of a batch ack."""
    return msgspec.json.encode(batch)


def decode_acks(body: bytes) -> AckBatch:
    """Decode the body of a batch ack, with short or full names."""
    if len(body) <= ACKS_SIZE_MAX:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _ACKS.decode(body)
    loose = decode_body(body, _LooseBatch)
    acks = [{_SHORT.get(name, name): value for name, value in ack.items()} for ack in loose.acks]
    try:
        pop_acks = [msgspec.convert(ack, PopAck, strict=False) for ack in acks]
    except msgspec.ValidationError as error:
        raise FieldError(f"batch ack: {error}") from error
    return AckBatch(broker_name=loose.broker_name, acks=pop_acks)


class _LooseBatch(msgspec.Struct):
    broker_name: str | None = msgspec.field(default=None, name="brokerName")
    acks: list[dict[str, object]] = []


_ACKS: Final = msgspec.json.Decoder(AckBatch, strict=False)
