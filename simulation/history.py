"""History: the events of a simulation line by line, and the facts that its checks read.

The lines of one seed are the same in every run, byte for byte: compare `digest`. All times are ms
since the start of the simulation.
"""

import hashlib
from collections.abc import Callable
from enum import Enum

import msgspec

from roquet.model.queue import MessageQueue
from simulation.scenario import Fault


class AcknowledgedMessage(msgspec.Struct, frozen=True):
    """A message that a broker acknowledged; a transaction's is only prepared then."""

    name: str
    began_ms: int
    """When the producer began to send it."""
    acknowledged_ms: int


class HandlingAttempt(msgspec.Struct, kw_only=True):
    """One consumer handling one message once."""

    consumer: str
    group: str
    name: str
    queue: MessageQueue
    offset: int
    tries: int
    """Earlier attempts, as the message says."""
    began_ms: int
    ended_ms: int | None = None
    """None while the handler runs, or when its consumer died meanwhile."""
    failed: bool = False


class Disturbance(msgspec.Struct, frozen=True):
    """A fault that took effect, or a broker that came back (`fault` is None)."""

    at_ms: int
    fault: Enum | None
    hosts: tuple[str, ...]


class History:
    """Written by the cluster and its clients while they run, read by the checks afterwards."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.lines: list[str] = []
        self.last_ms = now_ms()
        """When the last line was written."""
        self.acknowledged: dict[str, AcknowledgedMessage] = {}
        self.attempts: list[HandlingAttempt] = []
        self.in_progress: dict[tuple[str, str], None] = {}
        """(consumer, message name) of handlers that run."""
        self.disturbances: list[Disturbance] = []

    def say(self, text: str) -> None:
        """Write a line with the present time."""
        self.last_ms = self.now_ms()
        self.lines.append(f"{self.last_ms:>9} {text}")

    def digest(self) -> str:
        """SHA-256 of all lines, as hex."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    # Messages.

    def acknowledge(self, name: str, began_ms: int, text: str) -> None:
        """Note that a broker acknowledged a message; `text` says where or how it was sent."""
        self.acknowledged[name] = AcknowledgedMessage(name, began_ms, self.now_ms())
        self.say(f"stored {name} {text}")

    def begin(self, attempt: HandlingAttempt) -> HandlingAttempt:
        """Note that a handler begins."""
        self.attempts.append(attempt)
        self.in_progress[attempt.consumer, attempt.name] = None
        queue = short_name(attempt.queue)
        self.say(f"{attempt.consumer} begins {attempt.name} {queue} ({attempt.tries})")
        return attempt

    def end(self, attempt: HandlingAttempt, *, failed: bool) -> None:
        """Note that a handler ended."""
        attempt.ended_ms, attempt.failed = self.now_ms(), failed
        self.in_progress.pop((attempt.consumer, attempt.name), None)
        self.say(f"{attempt.consumer} {'fails' if failed else 'ends'} {attempt.name}")

    def handled(self, group: str) -> set[str]:
        """Names of the messages that a group has handled with success."""
        return {
            attempt.name
            for attempt in self.attempts
            if attempt.group == group and attempt.ended_ms is not None and not attempt.failed
        }

    # Faults.

    def disturb(self, fault: Enum | None, *hosts: str) -> None:
        """Note that a fault took effect; checks excuse some findings soon after one."""
        self.disturbances.append(Disturbance(self.now_ms(), fault, hosts))
        self.say(f"** {fault.name if fault else 'back:'} {' '.join(hosts)}".rstrip())

    def consumer_left(self, consumer: str) -> None:
        """Note that a consumer has stopped in good order."""
        self.say(f"{consumer} has left")

    def consumer_killed(self, consumer: str) -> None:
        """Note that a consumer's process is gone, and its handlers with it."""
        for attempt in [attempt for attempt in self.in_progress if attempt[0] == consumer]:
            del self.in_progress[attempt]

    def broker_crashed(self, host: str, back_ms: int) -> None:  # noqa: ARG002 - for subclasses
        """Note that a broker's process is gone until `back_ms`."""
        self.disturb(Fault.CRASH, host)

    def broker_returned(self, host: str) -> None:
        """Note that a broker serves again."""
        self.disturb(None, host)

    def times_of(self, fault: Fault) -> list[int]:
        """When a kind of fault took effect."""
        return [each.at_ms for each in self.disturbances if each.fault is fault]


def short_name(queue: MessageQueue) -> str:
    """A queue in a line: TOPIC/BROKER/ID."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
