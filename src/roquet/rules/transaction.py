"""Transactions: when a half message is asked about, what may end it, and which are ended.

    half queue   │ 40 ended │ 41 open │ 42 ended │ 43 open │ …      one mark a message
                   ▲ start              op: "40,42,"

A half message waits, invisible, until its producer says commit or roll back. Who says nothing is
asked. Facts are those of Apache RocketMQ 5.5.0: TransactionalMessageServiceImpl (check, immunity,
number of checks, bodies of op messages) and EndTransactionProcessor (what an end must agree with).
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
"""What an end or an answer may say (MessageSysFlag: the transaction bits of a record)."""

REMOVE_TAG: Final = "d"
"""The tag of op messages: the only kind there is (TransactionalMessageUtil.REMOVE_TAG)."""

OFFSET_SEPARATOR: Final = ","
"""Behind each offset of an op message; brokers of version 4 write one offset and nothing else."""

OFFSET_DIGITS_MAX: Final = 19
"""Of a number of 64 bits: what is longer is no offset."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_OFFSET: Final = re.compile(rb"[0-9]{1,19}")


class TransactionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How half messages are looked after."""

    timeout_ms: int
    """Younger ones are not asked about (transactionTimeOut)."""
    check_max: int
    """So often a producer is asked at most (transactionCheckMax)."""
    reserved_ms: int
    """What lies there for longer is given up: its file is about to go (fileReservedTime)."""


class HalfMessageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules look at in a half message."""

    born_ms: int
    stored_ms: int
    immunity: str | None = None
    """Its property CHECK_IMMUNITY_TIME_IN_SECONDS."""
    checked: str | None = None
    """Its property TRANSACTION_CHECK_TIMES."""


class CheckVerdict(Enum):
    """What to do with an open half message."""

    LATER = auto()
    """Too young, as are all behind it: the round ends here."""
    KEEP = auto()
    """Its sender wants it left alone for longer: store it again, unasked."""
    CHECK = auto()
    """Store it again with one check more, and ask its producer."""
    GIVE_UP = auto()
    """Nobody has decided in time: out of the way with it."""


def check_verdict(
    half: HalfMessageFacts, policy: TransactionPolicy, round_ms: int, now_ms: int
) -> CheckVerdict:
    """What a round that began at `round_ms` does with an open half message.

    Source: TransactionalMessageServiceImpl.check, needDiscard and needSkip. Those give up by the
    time when it was born, unasked where its producer's clock is days behind; we do by our own time,
    and do not leave a message alone for longer than messages are kept.
    """
    if times_checked(half.checked) >= policy.check_max or is_too_old(half, policy, now_ms):
        return CheckVerdict.GIVE_UP
    age_ms = now_ms - half.born_ms
    # One that seems to be stored in the future was so before the clock was set back: those behind
    # it must not wait until that time comes again.
    if round_ms <= half.stored_ms <= now_ms:
        return CheckVerdict.LATER
    if half.immunity is not None:
        limit_ms = min(immunity_ms(half.immunity, policy.timeout_ms), policy.reserved_ms)
        return CheckVerdict.KEEP if abs(age_ms) <= limit_ms else CheckVerdict.CHECK
    # One that claims to be born in the future is asked about at once, as in the genuine broker;
    # also one that wants to be left alone, if it claims more than it wants.
    return CheckVerdict.LATER if 0 <= age_ms <= policy.timeout_ms else CheckVerdict.CHECK


def is_too_old(half: HalfMessageFacts, policy: TransactionPolicy, now_ms: int) -> bool:
    """Whether the file in which it lies is about to go."""
    return now_ms - half.stored_ms > policy.reserved_ms


def times_checked(text: str | None) -> int:
    """How often its producer was asked; 0 for a property that is absent or no number."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else 0


def immunity_ms(text: str, timeout_ms: int) -> int:
    """For how long its sender wants a half message left alone; the timeout if that is unreadable.

    Source: TransactionalMessageServiceImpl.getImmunityTime. It may be less than the timeout.
    """
    seconds = int(text) if _NUMBER.fullmatch(text) else -1
    return timeout_ms if seconds == -1 else seconds * 1_000


def is_too_late(half: HalfMessageFacts, timeout_ms: int, now_ms: int) -> bool:
    """Whether an end that nobody asked for comes after the time its sender had set himself.

    Source: EndTransactionProcessor.rejectCommitOrRollback. Without the property no time is set.
    """
    if not half.immunity:
        return False
    allowed_ms = max(immunity_ms(half.immunity, timeout_ms), timeout_ms)
    return now_ms - half.born_ms > allowed_ms


class TransactionFault(Enum):
    """Why a half message cannot be ended, in genuine words where there are such."""

    UNKNOWN = "Find prepared transaction message failed"
    GROUP = "The producer group wrong"
    OFFSET = "The transaction state table offset wrong"
    POSITION = "The commit log offset wrong"
    LATE = "the time that CHECK_IMMUNITY_TIME_IN_SECONDS allows is over: wait for the check"
    ENDED = "the transaction of this half message has ended before"


class HalfMessagePosition(msgspec.Struct, frozen=True):
    """Where a half message is, and whose: what an end says, or what is found."""

    group: str | None
    offset: int
    position: int


def mismatch(found: HalfMessagePosition, said: HalfMessagePosition) -> TransactionFault | None:
    """What of an end does not agree with the half message; None when all does.

    Source: EndTransactionProcessor.checkPrepareMessage, which looks in this order.
    """
    if found.group is None or found.group != said.group:
        return TransactionFault.GROUP
    if found.offset != said.offset:
        return TransactionFault.OFFSET
    if found.position != said.position:
        return TransactionFault.POSITION
    return None


def offsets_of(body: bytes) -> list[int]:
    """The half messages that an op message ends: "12,15," or, of version 4, "12"."""
    pieces = (piece.strip() for piece in body.split(b","))
    return [int(piece) for piece in pieces if _OFFSET.fullmatch(piece)]


def op_bodies(offsets: Iterable[int], size_max: int) -> Iterator[bytes]:
    """The bodies of the op messages that end these, in their order; each ends once it is full.

    As genuine ones they may pass the size by one offset (transactionOpMsgMaxSize).
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
    """Which half messages of a queue are ended: a byte for each behind the oldest open one."""

    __slots__ = ("_marks", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        """All in front of it are ended."""
        self._marks = bytearray()

    def __len__(self) -> int:
        """How many bytes are held."""
        return len(self._marks)

    def is_ended(self, offset: int) -> bool:
        """Whether this one is ended."""
        index = offset - self.start
        return index < 0 or (index < len(self._marks) and self._marks[index] == 1)

    def end(self, offset: int) -> None:
        """Note that this one is ended; again changes nothing."""
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
        """The first one from here on that is open, if the queue holds it."""
        offset = max(offset, self.start)
        index = self._marks.find(0, offset - self.start)
        return max(offset, self.start + len(self._marks)) if index < 0 else self.start + index

    def advance(self) -> int:
        """Forget the ended ones in front of the first that is open; gives where that is."""
        self.forget(self.next_open(self.start))
        return self.start

    def forget(self, offset: int) -> None:
        """All in front of this one count as ended, whatever they were."""
        if offset > self.start:
            del self._marks[: offset - self.start]
            self.start = offset


class OpMessages:
    """The op messages that speak of half messages which are not all behind us."""

    __slots__ = ("_end", "_notes")

    def __init__(self, end: int) -> None:
        self._notes: deque[tuple[int, int]] = deque()
        """Offset of the op message, and the last half message that it ends."""
        self._end = end

    def __len__(self) -> int:
        return len(self._notes)

    def note(self, offset: int, ended: Iterable[int]) -> None:
        """An op message is stored, or was read: they come in the order of their queue."""
        self._notes.append((offset, max(ended, default=-1)))
        self._end = offset + 1

    def advance(self, start: int) -> int:
        """Where reading has to begin if half messages are to be known from `start` on."""
        notes = self._notes
        while notes and notes[0][1] < start:
            notes.popleft()
        return notes[0][0] if notes else self._end
