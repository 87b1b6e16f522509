"""Ledger: the messages that were sent, acknowledged and read, and what a log holds of them.

Each queue has one sender with one message in flight, or one batch, so its log has to hold the
bodies in the order of their numbers.
"""

import itertools
import random
import time
from collections.abc import Sequence
from typing import Final

from roquet.net.channel import Channel
from roquet.wire.calls.pull import Pull
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import decode_many

TOPIC: Final = "Kill"


class Ledger:
    """Messages sent, acknowledged and read, by queue."""

    def __init__(self, queues: int) -> None:
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(queues)]
        """Bodies by the offset that the acknowledgement named."""
        self.sent: list[set[bytes]] = [set() for _ in range(queues)]
        self.read: list[dict[int, bytes]] = [{} for _ in range(queues)]
        """Bodies by offset, as a consumer got them."""
        self.times: list[list[float]] = [[] for _ in range(queues)]
        """Monotonic time of each acknowledgement, of senders that measure it."""
        self.count = 0
        """Number of acknowledged messages."""
        self.failures = 0
        """Sends that were refused, that failed, or whose outcome is unknown."""
        self.twice = 0
        """Messages that the consumer got again."""
        self._numbers = [itertools.count() for _ in range(queues)]
        self.contradictions: list[str] = []
        """Offsets that were acknowledged or read as two messages: one of them is lost."""

    def next_body(self, queue_id: int) -> bytes:
        """The next body of a queue, noted as sent."""
        number = next(self._numbers[queue_id])
        body = b"%d:%d:" % (queue_id, number) + random.randbytes(random.randrange(1, 400))
        self.sent[queue_id].add(body)
        return body

    def acknowledge(self, queue_id: int, offset: int, body: bytes, at: float | None = None) -> None:
        """Note an acknowledgement; `at` is its monotonic time, if that is measured."""
        if self.acknowledged[queue_id].setdefault(offset, body) != body:
            self.contradictions.append(
                f"queue {queue_id}: offset {offset} was acknowledged for two messages"
            )
        self.count += 1
        if at is not None:
            self.times[queue_id].append(at)

    def note_read(self, queue_id: int, offset: int, body: bytes) -> None:
        """Note what the consumer got."""
        self.twice += offset in self.read[queue_id]
        if self.read[queue_id].setdefault(offset, body) != body:
            self.contradictions.append(f"queue {queue_id}: two messages had offset {offset}")

    @property
    def missing(self) -> list[str]:
        """Acknowledged messages that were not read, or read as others."""
        return [
            f"queue {queue_id} offset {offset}"
            for queue_id, acknowledged in enumerate(self.acknowledged)
            for offset, body in acknowledged.items()
            if self.read[queue_id].get(offset) != body
        ]

    @property
    def measured(self) -> int:
        """Number of acknowledgements with a time."""
        return sum(map(len, self.times))

    def longest_pause(self, began: float, now: float) -> float:
        """Longest time in seconds without an acknowledgement of a queue, since a moment."""
        pauses = []
        for times in self.times:
            before = [each for each in times if each < began][-1:]
            since = [*before, *(each for each in times if each >= began), now]
            pauses.append(max(later - earlier for earlier, later in itertools.pairwise(since)))
        return max(pauses)

    def judge(self, queue_id: int, bodies: Sequence[bytes]) -> int:
        """Judge every promise about a queue with these bodies, from offset 0 on.

        Returns the number of messages that are there twice. Raises AssertionError.
        """
        if self.contradictions:
            raise AssertionError("; ".join(self.contradictions))
        for offset, body in self.acknowledged[queue_id].items():
            if offset >= len(bodies):
                raise AssertionError(f"queue {queue_id}: acknowledged offset {offset} is lost")
            if bodies[offset] != body:
                raise AssertionError(f"queue {queue_id}: offset {offset} holds another message")
        if foreign := [body for body in bodies if body not in self.sent[queue_id]]:
            raise AssertionError(f"queue {queue_id}: {len(foreign)} messages that nobody sent")
        numbers = [int(body.split(b":", 2)[1]) for body in bodies]
        if any(later < earlier for earlier, later in itertools.pairwise(numbers)):
            raise AssertionError(f"queue {queue_id}: out of order")
        return len(numbers) - len(set(numbers))


class Pauses:
    """Longest times without an acknowledgement, by what was done to the cluster."""

    def __init__(self) -> None:
        self.by_kind: dict[str, list[float]] = {}

    def note(self, kind: str, began: float, ledger: Ledger) -> float:
        """Note and return the longest pause of all queues since a moment."""
        times = sorted(each for queue in ledger.times for each in queue if each >= began)
        since = [began, *times]
        pause = max(
            (later - earlier for earlier, later in itertools.pairwise(since)),
            default=time.monotonic() - began,
        )
        self.by_kind.setdefault(kind, []).append(pause)
        return pause


async def read(channel: Channel, queue_id: int) -> list[bytes]:
    """All bodies of a queue from its beginning; offsets are checked on the way."""
    bodies: list[bytes] = []
    while True:
        call = Pull(
            consumer_group="kill-reader",
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=len(bodies),
            max_msg_nums=1000,
            max_msg_bytes=1 << 20,
            sys_flag=4,
            commit_offset=-1,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        reply = await channel.call(call, timeout_ms=10_000)
        if reply.code != ResponseCode.SUCCESS:
            if reply.max_offset != len(bodies):
                raise AssertionError(
                    f"queue {queue_id}: read {len(bodies)}, the broker says {reply.max_offset}"
                )
            return bodies
        for record in decode_many(reply.body):
            if record.queue_offset != len(bodies):
                raise AssertionError(
                    f"queue {queue_id}: offset {record.queue_offset} where {len(bodies)} should be"
                )
            bodies.append(bytes(record.body))
