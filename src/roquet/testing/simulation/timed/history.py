"""Ledger: what happened in a simulated day, line by line, and the facts that checks read."""

import hashlib
from collections.abc import Callable
from enum import Enum

import msgspec

from roquet.testing.simulation.timed.scenario import SendOperation, TransactionCourse

BILLING = "billing"
"""The group that handles everything, and fails now and then."""

AUDIT = "audit"
"""The group that wants some messages only, and never fails."""


class AcknowledgedSend(msgspec.Struct, frozen=True):
    """A message that a broker acknowledged; a transaction's lies invisible then."""

    began_ms: int
    acknowledged_ms: int


class TimedAttempt(msgspec.Struct):
    """One member at work on one message."""

    member: str
    group: str
    name: str
    tries: int
    began_ms: int
    ended_ms: int | None = None
    failed: bool = False


class DatabaseState(Enum):
    """What the local database says of a transaction."""

    OPEN = "its work goes on"
    KEPT = "its work is done"
    DROPPED = "its work was taken back"


class TimedHistory:
    """Written by who works, read by the checks. All times are the wall's."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._start_ms = now_ms()
        self.lines: list[str] = []
        self.last_ms = now_ms()
        """When the last line was written."""
        self.sent: dict[str, AcknowledgedSend] = {}
        self.handlings: list[TimedAttempt] = []
        self.failures: dict[str, int] = {}
        self.dues: list[int] = []
        """When something is going to happen that nobody has to do."""
        self.at_work: dict[str, None] = {}
        self.fates: dict[str, tuple[DatabaseState, str]] = {}
        """The local database: the fate of each transaction, and who worked on it."""
        self.asked: dict[str, int] = {}
        self.handled: dict[str, set[str]] = {BILLING: set(), AUDIT: set()}

    def now_ms(self) -> int:
        """What time it is."""
        return self._now_ms()

    def say(self, text: str) -> None:
        """One more line."""
        self.last_ms = self._now_ms()
        self.lines.append(f"{self.last_ms - self._start_ms:>9} {text}")

    def acknowledge(self, operation: SendOperation, began_ms: int) -> None:
        """A broker has taken a message."""
        now_ms = self._now_ms()
        self.sent[operation.name] = AcknowledgedSend(began_ms, now_ms)
        if operation.wait_ms:
            self.dues.append(began_ms + operation.wait_ms)
        self.say(f"stored {operation.name} {operation.kind.value}")

    def begin(self, handling: TimedAttempt) -> TimedAttempt:
        """A member begins with a message."""
        self.handlings.append(handling)
        self.at_work[f"{handling.member} {handling.name}"] = None
        self.say(f"{handling.member} begins {handling.name} ({handling.tries})")
        return handling

    def end(self, handling: TimedAttempt, *, failed: bool) -> None:
        """It is through with it."""
        handling.ended_ms, handling.failed = self._now_ms(), failed
        self.at_work.pop(f"{handling.member} {handling.name}", None)
        if not failed:
            self.handled[handling.group].add(handling.name)
        self.say(f"{handling.member} {'fails' if failed else 'ends'} {handling.name}")

    def dead(self, member: str) -> None:
        """A member works no more."""
        for work in [work for work in self.at_work if work.startswith(f"{member} ")]:
            del self.at_work[work]

    def decide(self, name: str, fate: DatabaseState, who: str) -> None:
        """Write into the local database."""
        self.fates[name] = (fate, who)
        self.say(f"{who} notes that of {name} {fate.value}")

    def digest(self) -> str:
        """The lines in one word."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def is_to_come(self, operation: SendOperation) -> bool:
        """Whether consumers have to get a message: it was acknowledged, and not rolled back."""
        if operation.name not in self.sent:
            return False
        if operation.course is TransactionCourse.NEVER and self.is_transaction(operation):
            return False
        fate = self.fates.get(operation.name)
        return fate is None or fate[0] is DatabaseState.KEPT

    def is_transaction(self, operation: SendOperation) -> bool:
        """Whether it was sent in one."""
        return operation.name in self.fates
