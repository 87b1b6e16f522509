"""Pop model: when the messages of one history are handled, where free members pop them.

No queue has an owner. A member pops as many waiting messages as
`rules.consumption.pop.next_batch_size` says, handles them one after the other, and acknowledges
each. Popped messages are invisible to others until their invisible time is over; those not
acknowledged by then return, to any member.
"""

from collections import deque
from heapq import heappop, heappush
from random import Random
from typing import Final

import msgspec
import numpy as np

from roquet.lab.attempts import Attempts
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import (
    DIE,
    JOIN,
    LEAVE,
    MICROS_PER_MS,
    NEVER,
    MemberEvent,
    Timeline,
    topic_layout,
)
from roquet.model.topic import SubscriptionGroup
from roquet.rules.consumption.pop import (
    RETRY_FIRST_PERCENT,
    OpenCheckpoints,
    PopCheckpoint,
    member_pop_queues,
    next_batch_size,
    offsets_of,
)

COUNT_FIRST: Final = 1
"""How many messages a member takes the first time, as `client.popping.prefetch_buffer` does."""

RETRIES_MAX: Final = SubscriptionGroup(group_name="").retry_max_times
"""How often a message returns before it is a dead letter."""

_NEVER_BEGUN: Final = -1


class _PopBatch(msgspec.Struct, gc=False):
    """The messages that a member got by one pop."""

    popped: int
    messages: list[int]
    first_try: int
    late: PopCheckpoint | None = None
    """The checkpoint of those messages that return before they are handled."""


class PopModel:
    """The state of one history."""

    def __init__(self, scenario: LabScenario, timeline: Timeline) -> None:
        self._scenario = scenario
        self._timeline = timeline
        order = np.argsort(timeline.ready, kind="stable")
        self._waiting = deque(zip(timeline.ready[order].tolist(), order.tolist(), strict=True))
        self._returned: deque[int] = deque()
        """Messages that have returned and wait."""
        self._return_counts: dict[int, int] = {}
        """How often each message has returned."""
        self._work = timeline.work.tolist()
        self._slow_work = (timeline.work * scenario.slow_factor).astype(np.int64).tolist()
        self._invisible = scenario.times.invisible_ms * MICROS_PER_MS
        self._in_flight = OpenCheckpoints()
        """Checkpoints with messages that will not be acknowledged in time; others are left out."""
        self._due: list[int] = []
        self._unacknowledged: dict[int, list[int]] = {}
        """The messages of each checkpoint, by its number."""
        self._batches: dict[int, _PopBatch] = {}
        self._counts: dict[int, int] = {}
        """How many messages each working member pops next."""
        self._free: list[tuple[int, int]] = []
        """Heap of the times at which members become free; each member is in it at most once."""
        self._events = deque(timeline.events)
        self._attempts: list[tuple[int, int, int, int, bool]] = []
        self.returns: list[int] = []
        """The times at which messages returned."""
        self._now = 0
        self._rng = Random(timeline.seed)
        self.idle_us = 0
        """Members that may not pop from any queue, times the duration in microseconds."""
        self.spare_us = 0
        """Members beyond the number of queues, times the duration in microseconds."""
        self._accumulated = self._idle = self._spare = 0
        for member in range(scenario.members):
            self._apply((JOIN, member), 0)

    def play(self) -> None:
        """Run until all messages are handled, or no member is left."""
        while (now := min(self._next_take(), self._next_other())) < NEVER:
            self._now = now
            if self._events and self._events[0][0] == now:
                for event in self._events.popleft()[1]:
                    self._apply(event, now)
            elif self._due and self._due[0] == now:
                self._return_due(now)
            else:
                self._take(heappop(self._free)[1], now)
        self._accumulate(self._scenario.duration_ms * MICROS_PER_MS)

    def _next_take(self) -> int:
        """The time of the next pop: a member is free, and a message waits."""
        while self._free and self._free[0][1] not in self._counts:
            heappop(self._free)
        if not self._free:
            return NEVER
        if self._returned:
            return max(self._free[0][0], self._now)
        return max(self._free[0][0], self._waiting[0][0]) if self._waiting else NEVER

    def _next_other(self) -> int:
        """The time of the next change of membership or return of messages."""
        event = self._events[0][0] if self._events else NEVER
        return min(event, self._due[0]) if self._due else event

    def _apply(self, event: MemberEvent, now: int) -> None:
        kind, member = event
        self._accumulate(now)
        if kind == JOIN:
            self._counts[member] = COUNT_FIRST
            heappush(self._free, (now, member))
        elif kind in (LEAVE, DIE):
            del self._counts[member]
            if (batch := self._batches.pop(member, None)) is not None:
                self._release(batch, now, dead=kind == DIE)
        self._idle = self._count_without_queue()
        self._spare = max(len(self._counts) - self._scenario.queues, 0)

    def _release(self, batch: _PopBatch, now: int, *, dead: bool) -> None:
        """A member stops: one that leaves ends its current message, and returns the others.

        A dead one acknowledges nothing more, so its messages return after their invisible time.
        """
        lost = 0
        for place in range(len(batch.messages)):
            number = batch.first_try + place
            message, member, begin, end, _ = self._attempts[number]
            if end <= now:
                continue
            is_late = batch.late is not None and batch.late.bit(place) != 0
            if begin >= now:
                self._attempts[number] = (_NEVER_BEGUN, member, begin, end, False)
            elif dead:
                self._attempts[number] = (message, member, begin, now, False)
            if dead and not is_late:
                lost |= 1 << place
            elif begin >= now and (not is_late or self._withdraw(batch, place)):
                self._returned.append(message)
        if lost:
            self._checkpoint(batch, lost)

    def _withdraw(self, batch: _PopBatch, place: int) -> bool:
        assert batch.late is not None
        return self._in_flight.settle(batch.late, 1 << place) != 0

    def _checkpoint(self, batch: _PopBatch, left: int) -> PopCheckpoint:
        """Note the messages of a pop, a bit mask, that are not acknowledged in time."""
        number = len(self._unacknowledged)
        checkpoint = PopCheckpoint(
            group="", topic="", queue_id=number, start=0, pop_ms=batch.popped,
            invisible_ms=self._invisible, delivered=left, left=left, revive_queue_id=0,
            revive_offset=0,
        )  # fmt: skip
        self._in_flight.add(checkpoint)
        self._unacknowledged[number] = batch.messages
        heappush(self._due, checkpoint.due_ms)
        return checkpoint

    def _return_due(self, now: int) -> None:
        """An invisible time is over: the remaining messages of that pop return."""
        heappop(self._due)
        if (checkpoint := self._in_flight.take_due(now)) is None:
            return
        messages = self._unacknowledged[checkpoint.queue_id]
        for place in offsets_of(checkpoint.left, 0):
            message = messages[place]
            self._return_counts[message] = times = self._return_counts.get(message, 0) + 1
            if times <= RETRIES_MAX:
                self._returned.append(message)
        self._in_flight.settle(checkpoint, checkpoint.left)
        self.returns.append(now)

    def _take(self, member: int, now: int) -> None:
        """A member pops waiting messages and handles them one after the other."""
        count = self._counts[member]
        taken = self._pop_messages(count, now)
        work = self._slow_work if self._timeline.slow[member] else self._work
        batch = _PopBatch(now, taken, len(self._attempts))
        end, due, late = now, now + self._invisible, 0
        for place, message in enumerate(taken):
            begin, end = end, end + work[message]
            self._attempts.append((message, member, begin, end, True))
            if end > due:
                late |= 1 << place
        if late:
            batch.late = self._checkpoint(batch, late)
        self._batches[member] = batch
        self._counts[member] = next_batch_size(count, len(taken), (end - now) // MICROS_PER_MS)
        heappush(self._free, (end, member))

    def _pop_messages(self, count: int, now: int) -> list[int]:
        """Pop new messages first, but returned ones first in RETRY_FIRST_PERCENT of the pops."""
        returned_first = bool(self._returned) and self._rng.random() * 100 < RETRY_FIRST_PERCENT
        taken: list[int] = []
        if returned_first:
            self._take_returned(taken, count)
        while len(taken) < count and self._waiting and self._waiting[0][0] <= now:
            taken.append(self._waiting.popleft()[1])
        self._take_returned(taken, count)
        return taken

    def _take_returned(self, taken: list[int], count: int) -> None:
        while len(taken) < count and self._returned:
            taken.append(self._returned.popleft())

    def _count_without_queue(self) -> int:
        names = sorted(self._timeline.names[member] for member in self._counts)
        queues = topic_layout(self._scenario).queues
        return sum(not member_pop_queues(name, queues, names, {}, 0) for name in names)

    def _accumulate(self, now: int) -> None:
        now = min(now, self._scenario.duration_ms * MICROS_PER_MS)
        self.idle_us += self._idle * (now - self._accumulated)
        self.spare_us += self._spare * (now - self._accumulated)
        self._accumulated = now

    def attempts(self, first_message: int) -> Attempts:
        """All attempts; the messages of this history are numbered from `first_message` on."""
        begun = [attempt for attempt in self._attempts if attempt[0] != _NEVER_BEGUN]
        rows = np.array(begun, np.int64).reshape(-1, 5)
        return Attempts(
            message=rows[:, 0] + first_message,
            member=rows[:, 1],
            begin=rows[:, 2],
            end=rows[:, 3],
            done=rows[:, 4].astype(bool),
        )
