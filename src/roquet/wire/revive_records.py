"""Revive records: checkpoints of pops and their acknowledgements, in the revive topic, as JSON."""

from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.model import properties as names
from roquet.model.errors import FieldError
from roquet.wire.receipt_handle import LONG_MAX

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
"""Tags of the records of the revive topic, which tell their kinds."""

COUNT_MAX: Final = 4_096
STEP_MAX: Final = 65_536
"""Limits of one checkpoint: far more than a pop delivers, few enough to be kept as bits."""


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
    is_suspended: bool = msgspec.field(default=False, name="sp")
    """Whether the next delivery does not count as a try; brokers before 5.6 do not know it."""
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


def revive_properties(tag: str, now_ms: int) -> bytes:
    """Properties of a record of the revive topic.

    Apache's broker takes the time for the one that the topic has reached, when it reads the record.
    """
    return f"{names.TAGS}\x01{tag}\x02{names.TIMER_DELIVER_MS}\x01{now_ms}\x02".encode()
