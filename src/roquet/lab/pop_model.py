"""Popping: the messages of one history when members take them one by one, whoever is free.

No queue has an owner. A member takes as many of the messages that wait as
`rules.consumption.pop.next_batch_size` says, handles them one after the other, and acknowledges
each. What it has taken nobody else sees until its invisible time is over: then what is left of it
comes again, to anybody.
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
    next_batch_size,
    offsets_of,
)
from roquet.rules.consumption.pop_sharing import member_pop_queues

COUNT_FIRST: Final = 1
"""How many messages a member takes the first time, as `client.stock` does."""

RETRIES_MAX: Final = SubscriptionGroup(group_name="").retry_max_times
"""So often a message comes again; then it is a dead letter, however it fares with the last one."""

_NEVER_BEGUN: Final = -1


class _PopBatch(msgspec.Struct, gc=False):
    """What one pop gave to a member."""

    popped: int
    messages: list[int]
    first_try: int
    late: PopCheckpoint | None = None
    """Those that come again before they are handled."""


class PopModel:
    """One history."""

    def __init__(self, scenario: LabScenario, course: Timeline) -> None:
        self._scenario = scenario
        self._course = course
        order = np.argsort(course.ready, kind="stable")
        self._new = deque(zip(course.ready[order].tolist(), order.tolist(), strict=True))
        self._back: deque[int] = deque()
        """Messages that have come again."""
        self._again: dict[int, int] = {}
        """How often each has."""
        self._work = course.work.tolist()
        self._slow_work = (course.work * scenario.slow_factor).astype(np.int64).tolist()
        self._invisible = scenario.times.invisible_ms * MICROS_PER_MS
        self._flight = OpenCheckpoints()
        """What is not acknowledged in time; all else is over before anybody asks."""
        self._due: list[int] = []
        self._left: dict[int, list[int]] = {}
        """The messages of each checkpoint there, by its number."""
        self._hands: dict[int, _PopBatch] = {}
        self._counts: dict[int, int] = {}
        """How many each takes the next time; who is not in here does not work."""
        self._free: list[tuple[int, int]] = []
        """Until when each is busy; nobody is in it twice."""
        self._events = deque(course.moments)
        self._tries: list[tuple[int, int, int, int, bool]] = []
        self.returns: list[int] = []
        """When messages of somebody else came again."""
        self._now = 0
        self._rng = Random(course.seed)
        self.idle_us = 0
        """Members that may not pop from any queue, times how long."""
        self.spare_us = 0
        """Members beyond the number of queues, likewise."""
        self._weighed = self._idle = self._spare = 0
        for member in range(scenario.members):
            self._happen_to((JOIN, member), 0)

    def play(self) -> None:
        """Until all is handled, or nobody is left who could."""
        while (now := min(self._next_take(), self._next_other())) < NEVER:
            self._now = now
            if self._events and self._events[0][0] == now:
                for event in self._events.popleft()[1]:
                    self._happen_to(event, now)
            elif self._due and self._due[0] == now:
                self._come_again(now)
            else:
                self._take(heappop(self._free)[1], now)
        self._weigh(self._scenario.duration_ms * MICROS_PER_MS)

    def _next_take(self) -> int:
        """When the next pop finds something: somebody is free, and a message waits."""
        while self._free and self._free[0][1] not in self._counts:
            heappop(self._free)
        if not self._free:
            return NEVER
        if self._back:
            return max(self._free[0][0], self._now)
        return max(self._free[0][0], self._new[0][0]) if self._new else NEVER

    def _next_other(self) -> int:
        """When somebody comes or goes, or messages come again."""
        event = self._events[0][0] if self._events else NEVER
        return min(event, self._due[0]) if self._due else event

    def _happen_to(self, event: MemberEvent, now: int) -> None:
        kind, member = event
        self._weigh(now)
        if kind == JOIN:
            self._counts[member] = COUNT_FIRST
            heappush(self._free, (now, member))
        elif kind in (LEAVE, DIE):
            del self._counts[member]
            if (batch := self._hands.pop(member, None)) is not None:
                self._let_go(batch, now, dead=kind == DIE)
        self._idle = self._without_queue()
        self._spare = max(len(self._counts) - self._scenario.queues, 0)

    def _let_go(self, batch: _PopBatch, now: int, *, dead: bool) -> None:
        """Who dies acknowledges nothing more; who leaves ends what it is at, and gives back."""
        lost = 0
        for place in range(len(batch.messages)):
            number = batch.first_try + place
            message, member, begin, end, _ = self._tries[number]
            if end <= now:
                continue
            is_late = batch.late is not None and batch.late.bit(place) != 0
            if begin >= now:
                self._tries[number] = (_NEVER_BEGUN, member, begin, end, False)
            elif dead:
                self._tries[number] = (message, member, begin, now, False)
            if dead and not is_late:
                lost |= 1 << place
            elif begin >= now and (not is_late or self._given_back(batch, place)):
                self._back.append(message)
        if lost:
            self._leave_behind(batch, lost)

    def _given_back(self, batch: _PopBatch, place: int) -> bool:
        """Whether a late message has not come again yet, and now will not."""
        assert batch.late is not None
        return self._flight.settle(batch.late, 1 << place) != 0

    def _leave_behind(self, batch: _PopBatch, left: int) -> PopCheckpoint:
        """These of a pop's messages are not acknowledged in time."""
        number = len(self._left)
        found = PopCheckpoint(
            group="", topic="", queue_id=number, start=0, pop_ms=batch.popped,
            invisible_ms=self._invisible, delivered=left, left=left, revive_queue_id=0,
            revive_offset=0,
        )  # fmt: skip
        self._flight.add(found)
        self._left[number] = batch.messages
        heappush(self._due, found.due_ms)
        return found

    def _come_again(self, now: int) -> None:
        """An invisible time is over: what is left of that pop is given out anew."""
        heappop(self._due)
        if (found := self._flight.take_due(now)) is None:
            return
        messages = self._left[found.queue_id]
        for place in offsets_of(found.left, 0):
            message = messages[place]
            self._again[message] = times = self._again.get(message, 0) + 1
            if times <= RETRIES_MAX:
                self._back.append(message)
        self._flight.settle(found, found.left)
        self.returns.append(now)

    def _take(self, member: int, now: int) -> None:
        """A pop: what waits, as many as this member takes, one after the other."""
        count = self._counts[member]
        taken = self._taken(count, now)
        work = self._slow_work if self._course.slow[member] else self._work
        batch = _PopBatch(now, taken, len(self._tries))
        end, due, late = now, now + self._invisible, 0
        for place, message in enumerate(taken):
            begin, end = end, end + work[message]
            self._tries.append((message, member, begin, end, True))
            if end > due:
                late |= 1 << place
        if late:
            batch.late = self._leave_behind(batch, late)
        self._hands[member] = batch
        self._counts[member] = next_batch_size(count, len(taken), (end - now) // MICROS_PER_MS)
        heappush(self._free, (end, member))

    def _taken(self, count: int, now: int) -> list[int]:
        """New ones first, mostly; what comes again has its turn in one pop of five."""
        again_first = bool(self._back) and self._rng.random() * 100 < RETRY_FIRST_PERCENT
        taken: list[int] = []
        if again_first:
            self._take_back(taken, count)
        while len(taken) < count and self._new and self._new[0][0] <= now:
            taken.append(self._new.popleft()[1])
        self._take_back(taken, count)
        return taken

    def _take_back(self, taken: list[int], count: int) -> None:
        while len(taken) < count and self._back:
            taken.append(self._back.popleft())

    def _without_queue(self) -> int:
        names = sorted(self._course.names[member] for member in self._counts)
        queues = topic_layout(self._scenario).queues
        return sum(not member_pop_queues(name, queues, names, {}, 0) for name in names)

    def _weigh(self, now: int) -> None:
        now = min(now, self._scenario.duration_ms * MICROS_PER_MS)
        self.idle_us += self._idle * (now - self._weighed)
        self.spare_us += self._spare * (now - self._weighed)
        self._weighed = now

    def tries(self, first_message: int) -> Attempts:
        """Everything that was begun; messages are numbered from this one on."""
        begun = [one for one in self._tries if one[0] != _NEVER_BEGUN]
        rows = np.array(begun, np.int64).reshape(-1, 5)
        return Attempts(
            message=rows[:, 0] + first_message,
            member=rows[:, 1],
            begin=rows[:, 2],
            end=rows[:, 3],
            done=rows[:, 4].astype(bool),
        )
