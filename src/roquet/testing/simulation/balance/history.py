"""Journal: what happened in a simulated cluster, line by line, and the facts that checks read.

The lines of one seed are the same in every run, byte for byte: `digest` says so in one word.
"""

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from roquet.model.queue import MessageQueue


class AcknowledgedMessage(msgspec.Struct, frozen=True):
    """A message that a broker acknowledged."""

    name: str
    queue: MessageQueue
    offset: int


class HandlingAttempt(msgspec.Struct):
    """One member at work on one message."""

    member: str
    name: str
    order_key: str
    number: int
    """Its place among the messages of its order key."""
    queue: MessageQueue
    offset: int
    began_ms: int
    ended_ms: int | None = None
    """None while it is at work, or when its member died meanwhile."""
    failed: bool = False


class QueueOwnership(msgspec.Struct):
    """The time for which a member held a queue."""

    member: str
    queue: MessageQueue
    since_ms: int
    until_ms: int | None = None
    ended_by: str = ""
    """How: revoked, left, killed."""


class BalanceHistory:
    """Written by the world, read by the checks."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.lines: list[str] = []
        self.sent: list[AcknowledgedMessage] = []
        self.handlings: list[HandlingAttempt] = []
        self.holdings: list[QueueOwnership] = []
        self.unrest: list[tuple[int, str]] = []
        """When the cluster's peace was disturbed, and by what."""

    def say(self, text: str) -> None:
        """One more line."""
        self.lines.append(f"{self.now_ms():>8} {text}")

    def disturb(self, text: str) -> None:
        """Something happened to the cluster that excuses a little."""
        self.unrest.append((self.now_ms(), text))
        self.say(f"** {text}")

    def acknowledge(self, name: str, queue: MessageQueue, offset: int) -> None:
        """A producer has a receipt."""
        self.sent.append(AcknowledgedMessage(name, queue, offset))
        self.say(f"stored {name} {_short(queue)} {offset}")

    def begin(self, handling: HandlingAttempt) -> HandlingAttempt:
        """A member begins with a message."""
        self.handlings.append(handling)
        self.say(f"{handling.member} begins {handling.name} {_short(handling.queue)}")
        return handling

    def end(self, handling: HandlingAttempt, *, failed: bool) -> None:
        """It is through with it."""
        handling.ended_ms, handling.failed = self.now_ms(), failed
        self.say(f"{handling.member} {'fails' if failed else 'ends'} {handling.name}")

    def hold(self, member: str, queues: Sequence[MessageQueue]) -> None:
        """A member was given queues."""
        for queue in queues:
            self.holdings.append(QueueOwnership(member, queue, self.now_ms()))
            self.say(f"{member} holds {_short(queue)}")

    def let_go(self, member: str, queues: Sequence[MessageQueue] | None, how: str) -> None:
        """A member gave queues back, or all it held."""
        for holding in self.holdings:
            is_its = holding.member == member and holding.until_ms is None
            if is_its and (queues is None or holding.queue in queues):
                holding.until_ms, holding.ended_by = self.now_ms(), how
                self.say(f"{member} lets go {_short(holding.queue)}: {how}")

    def digest(self) -> str:
        """The lines in one word."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


def _short(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
