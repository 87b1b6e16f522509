"""Transactions: a producer ends one, a broker asks about one.

    producer ── send, half (310) ──▶ broker
    producer ── end (37) ──────────▶ broker        commit, roll back; one way
    producer ◀── check (39) ──────── broker        state of the transaction? one way
    producer ── end (37) ──────────▶ broker        the answer

An end identifies the half message twice: by its offset in the queue of half messages and by its
position in the log.
"""

from typing import ClassVar

import msgspec

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class EndTransaction(Call[Reply], frozen=True, kw_only=True):
    """Commit a half message, or roll it back."""

    code: ClassVar = RequestCode.END_TRANSACTION

    topic: str | None = None
    producer_group: str
    half_offset: Long = msgspec.field(name="tranStateTableOffset")
    """Offset of the half message in its queue."""
    position: Long = msgspec.field(name="commitLogOffset")
    """Position of the half message in the log, in bytes."""
    commit_or_rollback: Int
    """8 commits, 12 rolls back, 0 says that its producer does not know either."""
    from_transaction_check: bool = False
    """Whether it answers the broker's check."""
    msg_id: str = ""
    """The unique key; required by Apache's classes, and ignored by every broker."""
    transaction_id: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class CheckTransactionState(Call[Reply], frozen=True, kw_only=True):
    """A broker asks a producer about a half message; the body is the record as if committed.

    The answer repeats `half_offset` and `position`.
    """

    code: ClassVar = RequestCode.CHECK_TRANSACTION_STATE

    topic: str | None = None
    half_offset: Long = msgspec.field(name="tranStateTableOffset")
    position: Long = msgspec.field(name="commitLogOffset")
    msg_id: str | None = None
    """The unique key."""
    transaction_id: str | None = None
    """The unique key again."""
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class ResumeCheck(Call[Reply], frozen=True, kw_only=True):
    """Put back a half message that was given up; its producer is asked from the beginning.

    With our brokers also a message that one of their services has set aside.
    """

    code: ClassVar = RequestCode.RESUME_CHECK_HALF_MESSAGE

    topic: str | None = None
    msg_id: str | None = None
    """The broker's own id of the message that was given up."""
