"""Flow: the messages of many histories, queue by queue, between one change and the next.

A member handles the messages of its queues one after the other, in the order in which they could
be had. Between two changes that is Lindley's recursion, end = max(ready, end before) + work, which
unrolls to a running maximum; all members of all histories are worked out in one go, by numpy.

What is decided at a change is not decided here; what it does to messages is:

- a queue that moves stands still until its loser's handler has ended, or has taken too long, and
  then that message is begun again by the taker;
- a dead member's message is begun again, and so is all that it had not committed.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from roquet.lab.attempts import Attempts, QueuePauses, SimulatedMessages
from roquet.lab.decisions import NOBODY
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import (
    DIE,
    GONE,
    JOIN,
    LEAVE,
    MICROS_PER_MS,
    NEVER,
    IntArray,
    MemberEvent,
    Timeline,
)

BoolArray: TypeAlias = NDArray[np.bool_]

HistoryEvents: TypeAlias = tuple[int, int, Sequence[MemberEvent]]
"""Which history, when, what."""


class QueueModel:
    """Where every message of every history is."""

    def __init__(
        self, scenario: LabScenario, courses: Sequence[Timeline], messages: SimulatedMessages
    ) -> None:
        self._times = scenario.times
        self._ordered = scenario.ordered
        self._factor = scenario.slow_factor
        self._messages = messages
        histories, members = len(courses), max(len(course.names) for course in courses)
        self._members = members
        self._history = np.repeat(np.arange(histories), messages.count)
        self._slow = np.zeros((histories, members), bool)
        for number, course in enumerate(courses):
            self._slow[number, : len(course.slow)] = course.slow
        shape = (histories, members)
        self._at_work = np.zeros(shape, bool)
        self._at_work[:, : scenario.members] = True
        self._listed = self._at_work.copy()
        self._busy = np.zeros(shape, np.int64)
        """Until when each member is."""
        self._doing = np.full(shape, -1, np.int64)
        """The try that each member began last."""
        queues = (histories, scenario.queues)
        self._owner = np.full(queues, NOBODY, np.int64)
        self._free = np.zeros(queues, np.int64)
        """From when on the owner may begin."""
        self._still = np.full(queues, NEVER, np.int64)
        """Since when nobody works on a queue."""
        self._at = np.full(queues, -1, np.int64)
        """The try that was begun last in each queue."""
        self._backlog: list[IntArray] = []
        self._lines = _MessagesByStep(courses)
        self._tries = _AttemptLog(len(messages.sent))
        self._pauses: list[tuple[IntArray, IntArray, IntArray]] = []
        self._now = np.zeros(histories, np.int64)
        self._commits = [course.commits for course in courses]

    def own(self, owners: Sequence[Sequence[int]]) -> None:
        """The first owners, who begin at once."""
        self._owner[:] = owners

    def run(self, until: IntArray) -> None:
        """Handle what is begun before these times, one for each history."""
        fresh = next(self._lines)
        # What is begun again may be there twice: of a late handler, and of its member's death.
        waiting = np.unique(np.concatenate([*self._backlog, fresh]))
        history, queue = self._history[waiting], self._messages.queue[waiting]
        owner = self._owner[history, queue]
        can = (owner != NOBODY) & self._at_work[history, owner]
        self._backlog = [waiting[~can]]
        if can.any():
            self._handle(waiting[can], history[can], queue[can], owner[can], until)
        self._now = until

    def _handle(
        self,
        message: IntArray,
        history: IntArray,
        queue: IntArray,
        owner: IntArray,
        until: IntArray,
    ) -> None:
        line = history * self._members + owner
        ready = np.maximum(self._messages.ready[message], self._free[history, queue])
        ready = np.maximum(ready, self._now[history])
        order = np.lexsort((ready, line))
        message, history, queue = message[order], history[order], queue[order]
        owner, line, ready = owner[order], line[order], ready[order]
        work = self._work(message, self._slow[history, owner])
        end = _end_times(line, np.maximum(ready, self._busy[history, owner]), work)
        begin = end - work
        begun = begin < until[history]
        self._backlog.append(message[~begun])
        history, owner, queue = history[begun], owner[begun], queue[begun]
        number = self._tries.add(message[begun], owner, begin[begun], end[begun])
        # Of several values for one place the last one stays: the try that was begun last.
        self._busy[history, owner] = end[begun]
        self._doing[history, owner] = number
        self._at[history, queue] = number

    def _work(self, message: IntArray, slow: BoolArray) -> IntArray:
        work = self._messages.work[message]
        return np.where(slow, (work * self._factor).astype(np.int64), work)

    def lag(self, history: int, at: int) -> IntArray:
        """How many messages wait in each queue."""
        waiting = np.concatenate(self._backlog)
        first = history * self._messages.count
        own = waiting[(waiting >= first) & (waiting < first + self._messages.count)]
        own = own[self._messages.ready[own] <= at]
        return np.bincount(self._messages.queue[own], minlength=self._owner.shape[1])

    def happen(self, happening: Sequence[HistoryEvents]) -> BoolArray:
        """Members come and go, each history at its own time; who leaves is marked in the answer."""
        leaving = np.zeros_like(self._at_work)
        dying: list[tuple[int, int, int]] = []
        for history, at, events in happening:
            for kind, member in events:
                if kind == JOIN:
                    self._at_work[history, member] = self._listed[history, member] = True
                elif kind == LEAVE:
                    leaving[history, member] = True
                    self._at_work[history, member] = self._listed[history, member] = False
                elif kind == DIE:
                    dying.append((history, member, at))
                elif kind == GONE:
                    self._listed[history, member] = False
        if dying:
            self._die(*np.array(dying, np.int64).T)
        return leaving

    def _die(self, history: IntArray, member: IntArray, at: IntArray) -> None:
        """What was not committed comes again, and so does what it was at."""
        self._at_work[history, member] = False
        own = self._owner[history] == member[:, None]
        death, queue = np.nonzero(own)
        np.minimum.at(self._still, (history[death], queue), at[death])
        commits = np.array([self._commits[h][m] for h, m in zip(history, member, strict=True)])
        since = at - (at - commits) % (self._times.save_ms * MICROS_PER_MS)
        tries = self._tries
        death, number = tries.since(history, member, since, self._messages.count)
        queue = self._messages.queue[tries.message[number]]
        # What it handled before it had the queue, the last time, was committed by a hand-over.
        again = own[death, queue] & (tries.begin[number] >= self._free[history[death], queue])
        busy, last = self._busy[history, member] > at, self._doing[history, member]
        again |= busy[death] & (number == last[death])
        tries.cut(last[busy], at[busy])
        self._busy[history, member] = np.minimum(self._busy[history, member], at)
        self._backlog.append(tries.message[number[again]])

    def divide(
        self, rows: IntArray, owners: Sequence[Sequence[int]], at: IntArray, leaving: BoolArray
    ) -> None:
        """Give the queues of these histories to new owners at these times."""
        if not len(rows):
            return
        old, new = self._owner[rows], np.array(owners, np.int64)
        now = at[:, None]
        wait, late = self._waits(rows, old, now, leaving[rows])
        moves = (old != new) & (new != NOBODY)
        free = np.where(moves, now + self._times.notice_ms * MICROS_PER_MS + wait, self._free[rows])
        begun = moves & late
        self._backlog.append(self._tries.message[self._at[rows][begun]])
        self._rest(rows, old, new, now, free)
        self._free[rows] = free
        self._owner[rows] = new

    def _waits(
        self, rows: IntArray, old: IntArray, now: IntArray, leaving: BoolArray
    ) -> tuple[IntArray, BoolArray]:
        """How long a taker waits for the loser, and where that one's handler takes longer."""
        times, place = self._times, rows[:, None]
        limit = times.lock_ms if self._ordered else times.loser_ms
        had = old != NOBODY
        leaves = had & np.take_along_axis(leaving, np.maximum(old, 0), 1)
        at_work, listed = had & self._at_work[place, old], had & self._listed[place, old]
        at = self._at[rows]
        of_queue = np.where(at >= 0, self._tries.end_of(at), 0) - now
        most = np.where(leaves, times.close_ms, limit) * MICROS_PER_MS
        # Who closes tells the broker last: all its queues wait for whatever it is at.
        left = np.where(leaves, self._busy[place, old] - now, of_queue)
        wait = np.clip(left, 0, most)
        # Of one who died and is still listed, nobody knows that no commit will come.
        wait = np.where(at_work | leaves, wait, np.where(listed, times.taker_ms * MICROS_PER_MS, 0))
        if self._ordered:  # the lock is that of whoever is still at a message
            wait = np.maximum(wait, np.clip(of_queue, 0, times.lock_ms * MICROS_PER_MS))
        # Whoever it is that is still at a message of the queue: it is not committed by then.
        return wait, of_queue > wait

    def _rest(
        self, rows: IntArray, old: IntArray, new: IntArray, now: IntArray, free: IntArray
    ) -> None:
        """Note which queues stood still, and which begin to."""
        still = self._still[rows]
        stops = np.where(still < NEVER, still, np.maximum(now, self._free[rows]))
        goes = (new != NOBODY) & self._at_work[rows[:, None], new]
        ended = (old != new) & goes & (old != NOBODY) | goes & (still < NEVER)
        ends = np.where(old != new, free, now)
        place, queue = np.nonzero(ended & (ends > stops))
        self._pauses.append((rows[place], stops[place, queue], ends[place, queue]))
        self._still[rows] = np.where(goes, NEVER, np.minimum(stops, still))

    def finish(self, at: int) -> tuple[Attempts, QueuePauses]:
        """Everything that was begun, and every pause; the last ones end with the history."""
        place, queue = np.nonzero(self._still < at)
        self._pauses.append((place, self._still[place, queue], np.full(len(place), at)))
        history, begin, end = (np.concatenate(part) for part in zip(*self._pauses, strict=True))
        return self._tries.all(), QueuePauses(history=history, begin=begin, end=end)


class _AttemptLog:
    """Tries in the order in which they were worked out, in arrays that grow."""

    def __init__(self, room: int) -> None:
        self._count = 0
        self.message = np.empty(room, np.int64)
        self.member = np.empty(room, np.int64)
        self.begin = np.empty(room, np.int64)
        self.end = np.empty(room, np.int64)
        self.done = np.empty(room, bool)
        self._last = np.full(room, -1, np.int64)
        """Of each message."""

    def add(self, message: IntArray, member: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """More tries; gives their numbers."""
        first, self._count = self._count, self._count + len(message)
        while self._count > len(self.message):
            self._grow()
        place = slice(first, self._count)
        self.message[place], self.member[place] = message, member
        self.begin[place], self.end[place], self.done[place] = begin, end, True
        number = np.arange(first, self._count)
        self._last[message] = number
        return number

    def _grow(self) -> None:
        for name in ("message", "member", "begin", "end", "done"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.empty_like(old)]))

    def since(
        self, history: IntArray, member: IntArray, at: IntArray, count: int
    ) -> tuple[IntArray, IntArray]:
        """Members' tries, each the last one of its message, that ended after a time: whose, which.

        Each member has a place in the three arrays, which is told.
        """
        last = self._last.reshape(-1, count)[history]
        found = (self.member[last] == member[:, None]) & (self.end[last] > at[:, None])
        place, message = np.nonzero(found & (last >= 0))
        return place, last[place, message]

    def end_of(self, number: IntArray) -> IntArray:
        """When these end; for none (-1) anything."""
        return self.end[number]

    def cut(self, number: IntArray, at: IntArray) -> None:
        """Their members died at them."""
        self.end[number], self.done[number] = at, False

    def all(self) -> Attempts:
        """As they are now."""
        until = slice(0, self._count)
        return Attempts(
            message=self.message[until],
            member=self.member[until],
            begin=self.begin[until],
            end=self.end[until],
            done=self.done[until],
        )


def _end_times(line: IntArray, ready: IntArray, work: IntArray) -> IntArray:
    """When each ends, in lines that lie one behind the other: end = max(ready, end before) + work.

    end_i = W_i + max over j <= i of (ready_j - W_(j-1)), where W sums up the work. To keep a line's
    maximum out of the next one, each line is lifted above the one before it.
    """
    summed = np.cumsum(work)
    slack = ready - (summed - work)
    place = np.cumsum(np.diff(line, prepend=line[0]) != 0)
    lift = place * (int(slack.max()) - int(slack.min()) + 1)
    latest: IntArray = np.maximum.accumulate(slack + lift) - lift
    return latest + summed


class _MessagesByStep:
    """Messages by the stretch between two changes in which they can first be had."""

    def __init__(self, courses: Sequence[Timeline]) -> None:
        steps = 1 + max(len(course.moments) for course in courses)
        step = np.concatenate(
            [
                np.searchsorted([at for at, _ in course.moments], course.ready, "right")
                for course in courses
            ]
        )
        self._order = np.argsort(step, kind="stable")
        self._edges = np.concatenate([[0], np.cumsum(np.bincount(step, minlength=steps))])
        self._turn = 0

    def __next__(self) -> IntArray:
        first, last = self._edges[self._turn], self._edges[self._turn + 1]
        self._turn += 1
        return self._order[first:last]
