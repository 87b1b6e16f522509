"""Transactions: when to check a half message, what may end it, and which are ended.

    half queue   │ 40 ended │ 41 open │ 42 ended │ 43 open │ …      one byte per message
                   ▲ start              op: "40,42,"

A half message waits, invisible, until its producer commits it or rolls it back. A producer that
does neither is asked. Source: Apache RocketMQ 5.5.0, TransactionalMessageServiceImpl (check,
immunity, number of checks, bodies of op messages) and EndTransactionProcessor (conditions on an
end).
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

import msgspec

COMMIT: Final = 8
ROLL_BACK: Final = 12
UNKNOWN: Final = 0
"""Values of an end request or a check's answer (MessageSysFlag: the transaction bits of a
record)."""

REMOVE_TAG: Final = "d"
"""Tag of op messages; there is no other kind (TransactionalMessageUtil.REMOVE_TAG)."""

OFFSET_SEPARATOR: Final = ","
"""Follows each offset of an op message; brokers of version 4 write one offset and nothing else."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_OFFSET: Final = re.compile(rb"[0-9]{1,19}")


class TransactionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for the check of half messages."""

    timeout_ms: int
    """Younger half messages are not checked (transactionTimeOut)."""
    check_max: int
    """Largest number of checks (transactionCheckMax)."""
    reserved_ms: int
    """Older half messages are given up: their file is about to be deleted (fileReservedTime)."""


class HalfMessageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a half message that the rules look at."""

    born_ms: int
    stored_ms: int
    immunity: str | None = None
    """Property CHECK_IMMUNITY_TIME_IN_SECONDS."""
    checked: str | None = None
    """Property TRANSACTION_CHECK_TIMES."""


class CheckVerdict(Enum):
    """Action of a check round on an open half message."""

    LATER = auto()
    """Too young, as are all behind it: the round ends here."""
    KEEP = auto()
    """Its sender asked for a longer grace time: store it again, without a check."""
    CHECK = auto()
    """Store it again with one more check, and ask its producer."""
    GIVE_UP = auto()
    """Nobody decided in time: move it out of the way."""


def check_verdict(
    half: HalfMessageFacts, policy: TransactionPolicy, round_ms: int, now_ms: int
) -> CheckVerdict:
    """Action of a round that began at `round_ms` on an open half message.

    Source: TransactionalMessageServiceImpl.check, needDiscard and needSkip. Apache's broker gives
    up by the born time, without a check if its producer's clock is days behind; this rule uses the
    broker's own time, and does not spare a message from checks for longer than messages are kept.
    """
    if times_checked(half.checked) >= policy.check_max or is_too_old(half, policy, now_ms):
        return CheckVerdict.GIVE_UP
    age_ms = now_ms - half.born_ms
    # A store time in the future is from before the clock was set back: messages behind it must not
    # wait until that time comes again.
    if round_ms <= half.stored_ms <= now_ms:
        return CheckVerdict.LATER
    if half.immunity is not None:
        limit_ms = min(immunity_ms(half.immunity, policy.timeout_ms), policy.reserved_ms)
        return CheckVerdict.KEEP if abs(age_ms) <= limit_ms else CheckVerdict.CHECK
    # A message that claims to be born in the future is checked at once, as by Apache's broker; so
    # is one with a grace time, if it claims to be further in the future than that time.
    return CheckVerdict.LATER if 0 <= age_ms <= policy.timeout_ms else CheckVerdict.CHECK


def is_too_old(half: HalfMessageFacts, policy: TransactionPolicy, now_ms: int) -> bool:
    """Whether the file that holds it is about to be deleted."""
    return now_ms - half.stored_ms > policy.reserved_ms


def times_checked(text: str | None) -> int:
    """Number of checks so far; 0 for a property that is absent or not a number."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else 0


def immunity_ms(text: str, timeout_ms: int) -> int:
    """Grace time before a check that the sender asked for; the timeout if it is unreadable.

    Source: TransactionalMessageServiceImpl.getImmunityTime. It may be less than the timeout.
    """
    seconds = int(text) if _NUMBER.fullmatch(text) else -1
    return timeout_ms if seconds == -1 else seconds * 1_000


def is_too_late(half: HalfMessageFacts, timeout_ms: int, now_ms: int) -> bool:
    """Whether an end that was not asked for comes after the grace time that its sender set.

    Source: EndTransactionProcessor.rejectCommitOrRollback. Without the property there is no such
    time.
    """
    if not half.immunity:
        return False
    allowed_ms = max(immunity_ms(half.immunity, timeout_ms), timeout_ms)
    return now_ms - half.born_ms > allowed_ms


class TransactionFault(Enum):
    """Why a half message cannot be ended, with Apache's remarks where they exist."""

    UNKNOWN = "Find prepared transaction message failed"
    GROUP = "The producer group wrong"
    OFFSET = "The transaction state table offset wrong"
    POSITION = "The commit log offset wrong"
    LATE = "the time that CHECK_IMMUNITY_TIME_IN_SECONDS allows is over: wait for the check"
    ENDED = "the transaction of this half message has ended before"


class HalfMessagePosition(msgspec.Struct, frozen=True):
    """Location and producer group of a half message, as stored or as named by an end request."""

    group: str | None
    offset: int
    position: int


def mismatch(stored: HalfMessagePosition, named: HalfMessagePosition) -> TransactionFault | None:
    """First field of an end request that disagrees with the half message; None if all agree.

    Source: EndTransactionProcessor.checkPrepareMessage, which compares in this order.
    """
    if stored.group is None or stored.group != named.group:
        return TransactionFault.GROUP
    if stored.offset != named.offset:
        return TransactionFault.OFFSET
    if stored.position != named.position:
        return TransactionFault.POSITION
    return None


def offsets_of(body: bytes) -> list[int]:
    """Offsets of the half messages that an op message ends: "12,15," or, of version 4, "12"."""
    parts = (part.strip() for part in body.split(b","))
    return [int(part) for part in parts if _OFFSET.fullmatch(part)]


def op_bodies(offsets: Iterable[int], size_max: int) -> Iterator[bytes]:
    """Bodies of the op messages that end these half messages, in order, each up to the size limit.

    Like Apache's they may exceed the size by one offset (transactionOpMsgMaxSize).
    """
    pieces: list[str] = []
    size = 0
    for offset in offsets:
        piece = f"{offset}{OFFSET_SEPARATOR}"
        pieces.append(piece)
        size += len(piece)
        if size >= size_max:
            yield "".join(pieces).encode("ascii")
            pieces, size = [], 0
    if pieces:
        yield "".join(pieces).encode("ascii")


class EndedHalfMessages:
    """Ended half messages of a queue: a byte for each, from the oldest open one on."""

    __slots__ = ("_marks", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        """All before this offset are ended."""
        self._marks = bytearray()

    def __len__(self) -> int:
        """Number of bytes held."""
        return len(self._marks)

    def is_ended(self, offset: int) -> bool:
        """Whether a half message is ended."""
        index = offset - self.start
        return index < 0 or (index < len(self._marks) and self._marks[index] == 1)

    def end(self, offset: int) -> None:
        """Record that a half message is ended; repeating it changes nothing."""
        index = offset - self.start
        if index < 0:
            return
        marks = self._marks
        if index == len(marks):
            marks.append(1)
            return
        if index > len(marks):
            marks.extend(bytes(index + 1 - len(marks)))
        marks[index] = 1

    def next_open(self, offset: int) -> int:
        """First open offset from `offset` on, if the queue holds it."""
        offset = max(offset, self.start)
        index = self._marks.find(0, offset - self.start)
        return max(offset, self.start + len(self._marks)) if index < 0 else self.start + index

    def advance(self) -> int:
        """Forget the ended ones before the first open one; returns its offset."""
        self.forget(self.next_open(self.start))
        return self.start

    def forget(self, offset: int) -> None:
        """Count all before `offset` as ended, whatever they were."""
        if offset > self.start:
            del self._marks[: offset - self.start]
            self.start = offset


class OpMessages:
    """Op messages about half messages that are not all before the oldest open one."""

    __slots__ = ("_end", "_notes")

    def __init__(self, end: int) -> None:
        self._notes: deque[tuple[int, int]] = deque()
        """Offset of the op message, and the offset of the last half message that it ends."""
        self._end = end

    def __len__(self) -> int:
        return len(self._notes)

    def note(self, offset: int, ended: Iterable[int]) -> None:
        """Record an op message that was stored or read; they come in the order of their queue."""
        self._notes.append((offset, max(ended, default=-1)))
        self._end = offset + 1

    def advance(self, start: int) -> int:
        """Op offset to read from so that half messages from `start` on are known."""
        notes = self._notes
        while notes and notes[0][1] < start:
            notes.popleft()
        return notes[0][0] if notes else self._end
