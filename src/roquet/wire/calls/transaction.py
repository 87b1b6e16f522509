"""Transactions: a producer ends one, a broker asks about one.

    producer ── send, half (310) ──▶ broker
    producer ── end (37) ──────────▶ broker        commit, roll back; one way
    producer ◀── check (39) ──────── broker        "what has become of it?"; one way
    producer ── end (37) ──────────▶ broker        the answer

An end names the half message by where it lies, twice: in the queue of half messages and in the log.
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
    """Where the half message stands in its queue."""
    position: Long = msgspec.field(name="commitLogOffset")
    """Where it begins in the log."""
    commit_or_rollback: Int
    """8 commits, 12 rolls back, 0 says that its producer does not know either."""
    from_transaction_check: bool = False
    """Whether the broker has asked."""
    msg_id: str = ""
    """The unique key; the genuine classes want it, and no broker looks at it."""
    transaction_id: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class CheckTransactionState(Call[Reply], frozen=True, kw_only=True):
    """A broker asks a producer about a half message: the body is its record, as it will be.

    Whoever answers repeats `half_offset` and `position`.
    """

    code: ClassVar = RequestCode.CHECK_TRANSACTION_STATE

    topic: str | None = None
    half_offset: Long = msgspec.field(name="tranStateTableOffset")
    position: Long = msgspec.field(name="commitLogOffset")
    msg_id: str | None = None
    """The unique key."""
    transaction_id: str | None = None
    """The same once more."""
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class ResumeCheck(Call[Reply], frozen=True, kw_only=True):
    """A half message that was given up is put back, and its producer asked from the beginning.

    Of our brokers also a message that one of their services has set aside.
    """

    code: ClassVar = RequestCode.RESUME_CHECK_HALF_MESSAGE

    topic: str | None = None
    msg_id: str | None = None
    """The broker's own id of the message that was given up."""
