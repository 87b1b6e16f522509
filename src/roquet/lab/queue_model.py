"""Queue model: when the messages of many histories are handled, where queues have owners.

A member handles the messages of its queues one after the other, in the order in which they became
available. Between two changes that is Lindley's recursion, end = max(ready, end before) + work,
which unrolls to a running maximum. All members of all histories are computed at once, by numpy.

The strategies decide at a change; the model computes the effects:

- a queue that moves pauses until its old owner's handler has ended, or until the hand-over times
  out; then the new owner begins that message again;
- the message that a dead member was handling is begun again, and so is all it had not committed.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

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


class HistoryEvents(NamedTuple):
    """The events of one history at one time."""

    history: int
    at: int
    events: Sequence[MemberEvent]


class QueueModel:
    """The state of all queues and members of many histories."""

    def __init__(
        self, scenario: LabScenario, timelines: Sequence[Timeline], messages: SimulatedMessages
    ) -> None:
        self._times = scenario.times
        self._ordered = scenario.ordered
        self._factor = scenario.slow_factor
        self._messages = messages
        histories, members = len(timelines), max(len(timeline.names) for timeline in timelines)
        self._members = members
        self._history = np.repeat(np.arange(histories), messages.count)
        self._slow = np.zeros((histories, members), bool)
        for number, timeline in enumerate(timelines):
            self._slow[number, : len(timeline.slow)] = timeline.slow
        shape = (histories, members)
        self._working = np.zeros(shape, bool)
        self._working[:, : scenario.members] = True
        self._listed = self._working.copy()
        self._busy_until = np.zeros(shape, np.int64)
        """When each member becomes free."""
        self._current_attempt = np.full(shape, -1, np.int64)
        """The attempt that each member began last."""
        queues = (histories, scenario.queues)
        self._owner = np.full(queues, NOBODY, np.int64)
        self._free_at = np.zeros(queues, np.int64)
        """When the owner of each queue may begin."""
        self._paused_since = np.full(queues, NEVER, np.int64)
        """When each queue paused; NEVER for a queue that does not."""
        self._last_attempt = np.full(queues, -1, np.int64)
        """The attempt that was begun last in each queue."""
        self._backlog: list[IntArray] = []
        self._arrivals = _MessagesByStep(timelines)
        self._attempts = _AttemptLog(len(messages.sent))
        self._pauses: list[tuple[IntArray, IntArray, IntArray]] = []
        self._now = np.zeros(histories, np.int64)
        self._commits = [timeline.commits for timeline in timelines]

    def assign_first(self, owners: Sequence[Sequence[int]]) -> None:
        """Set the first owners, which begin at once."""
        self._owner[:] = owners

    def run(self, until: IntArray) -> None:
        """Handle the messages that are begun before these times, one for each history."""
        arrived = next(self._arrivals)
        # A message may be repeated both for a late handler and for the death of its member.
        waiting = np.unique(np.concatenate([*self._backlog, arrived]))
        history, queue = self._history[waiting], self._messages.queue[waiting]
        owner = self._owner[history, queue]
        can = (owner != NOBODY) & self._working[history, owner]
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
        ready = np.maximum(self._messages.ready[message], self._free_at[history, queue])
        ready = np.maximum(ready, self._now[history])
        order = np.lexsort((ready, line))
        message, history, queue = message[order], history[order], queue[order]
        owner, line, ready = owner[order], line[order], ready[order]
        work = self._work(message, self._slow[history, owner])
        end = _end_times(line, np.maximum(ready, self._busy_until[history, owner]), work)
        begin = end - work
        begun = begin < until[history]
        self._backlog.append(message[~begun])
        history, owner, queue = history[begun], owner[begun], queue[begun]
        number = self._attempts.add(message[begun], owner, begin[begun], end[begun])
        # Of several values for one index numpy keeps the last: the attempt that was begun last.
        self._busy_until[history, owner] = end[begun]
        self._current_attempt[history, owner] = number
        self._last_attempt[history, queue] = number

    def _work(self, message: IntArray, slow: BoolArray) -> IntArray:
        work = self._messages.work[message]
        return np.where(slow, (work * self._factor).astype(np.int64), work)

    def lag(self, history: int, at: int) -> IntArray:
        """Messages that wait in each queue of a history."""
        waiting = np.concatenate(self._backlog)
        first = history * self._messages.count
        own = waiting[(waiting >= first) & (waiting < first + self._messages.count)]
        own = own[self._messages.ready[own] <= at]
        return np.bincount(self._messages.queue[own], minlength=self._owner.shape[1])

    def apply(self, happening: Sequence[HistoryEvents]) -> BoolArray:
        """Apply events, each history at its own time; returns which members are leaving."""
        leaving = np.zeros_like(self._working)
        dying: list[tuple[int, int, int]] = []
        for history, at, events in happening:
            for kind, member in events:
                if kind == JOIN:
                    self._working[history, member] = self._listed[history, member] = True
                elif kind == LEAVE:
                    leaving[history, member] = True
                    self._working[history, member] = self._listed[history, member] = False
                elif kind == DIE:
                    dying.append((history, member, at))
                elif kind == GONE:
                    self._listed[history, member] = False
        if dying:
            self._die(*np.array(dying, np.int64).T)
        return leaving

    def _die(self, history: IntArray, member: IntArray, at: IntArray) -> None:
        """Repeat the messages that were not committed, and those that were being handled."""
        self._working[history, member] = False
        own = self._owner[history] == member[:, None]
        death, queue = np.nonzero(own)
        np.minimum.at(self._paused_since, (history[death], queue), at[death])
        commits = np.array([self._commits[h][m] for h, m in zip(history, member, strict=True)])
        since = at - (at - commits) % (self._times.save_ms * MICROS_PER_MS)
        attempts = self._attempts
        death, number = attempts.since(history, member, since, self._messages.count)
        queue = self._messages.queue[attempts.message[number]]
        # Messages handled before it last got the queue were committed at the hand-over.
        again = own[death, queue] & (attempts.begin[number] >= self._free_at[history[death], queue])
        busy, last = self._busy_until[history, member] > at, self._current_attempt[history, member]
        again |= busy[death] & (number == last[death])
        attempts.cut(last[busy], at[busy])
        self._busy_until[history, member] = np.minimum(self._busy_until[history, member], at)
        self._backlog.append(attempts.message[number[again]])

    def reassign(
        self, rows: IntArray, owners: Sequence[Sequence[int]], at: IntArray, leaving: BoolArray
    ) -> None:
        """Give the queues of these histories (`rows`) to new owners at these times."""
        if not len(rows):
            return
        old, new = self._owner[rows], np.array(owners, np.int64)
        now = at[:, None]
        wait, late = self._handover_waits(rows, old, now, leaving[rows])
        moves = (old != new) & (new != NOBODY)
        free = np.where(
            moves, now + self._times.notice_ms * MICROS_PER_MS + wait, self._free_at[rows]
        )
        begun = moves & late
        self._backlog.append(self._attempts.message[self._last_attempt[rows][begun]])
        self._note_pauses(rows, old, new, now, free)
        self._free_at[rows] = free
        self._owner[rows] = new

    def _handover_waits(
        self, rows: IntArray, old: IntArray, now: IntArray, leaving: BoolArray
    ) -> tuple[IntArray, BoolArray]:
        """How long new owners wait for the old ones, and where the old handler takes longer."""
        times, place = self._times, rows[:, None]
        limit = times.lock_ms if self._ordered else times.loser_ms
        had = old != NOBODY
        leaves = had & np.take_along_axis(leaving, np.maximum(old, 0), 1)
        at_work, listed = had & self._working[place, old], had & self._listed[place, old]
        at = self._last_attempt[rows]
        of_queue = np.where(at >= 0, self._attempts.end_of(at), 0) - now
        most = np.where(leaves, times.close_ms, limit) * MICROS_PER_MS
        # A closing member unregisters last, so all its queues wait for its current message.
        left = np.where(leaves, self._busy_until[place, old] - now, of_queue)
        wait = np.clip(left, 0, most)
        # For a dead member that is still listed the wait is full: no commit will come.
        wait = np.where(at_work | leaves, wait, np.where(listed, times.taker_ms * MICROS_PER_MS, 0))
        if self._ordered:  # the member that is still handling a message holds the lock
            wait = np.maximum(wait, np.clip(of_queue, 0, times.lock_ms * MICROS_PER_MS))
        # A message that is still being handled then is not committed, whoever handles it.
        return wait, of_queue > wait

    def _note_pauses(
        self, rows: IntArray, old: IntArray, new: IntArray, now: IntArray, free: IntArray
    ) -> None:
        still = self._paused_since[rows]
        stops = np.where(still < NEVER, still, np.maximum(now, self._free_at[rows]))
        goes = (new != NOBODY) & self._working[rows[:, None], new]
        ended = (old != new) & goes & (old != NOBODY) | goes & (still < NEVER)
        ends = np.where(old != new, free, now)
        place, queue = np.nonzero(ended & (ends > stops))
        self._pauses.append((rows[place], stops[place, queue], ends[place, queue]))
        self._paused_since[rows] = np.where(goes, NEVER, np.minimum(stops, still))

    def finish(self, at: int) -> tuple[Attempts, QueuePauses]:
        """All attempts, and all pauses; the last pauses end with the history, at this time."""
        place, queue = np.nonzero(self._paused_since < at)
        self._pauses.append((place, self._paused_since[place, queue], np.full(len(place), at)))
        history, begin, end = (np.concatenate(part) for part in zip(*self._pauses, strict=True))
        return self._attempts.all(), QueuePauses(history=history, begin=begin, end=end)


class _AttemptLog:
    """Attempts in the order of their computation, in arrays that grow."""

    def __init__(self, room: int) -> None:
        self._count = 0
        self.message = np.empty(room, np.int64)
        self.member = np.empty(room, np.int64)
        self.begin = np.empty(room, np.int64)
        self.end = np.empty(room, np.int64)
        self.done = np.empty(room, bool)
        self._last = np.full(room, -1, np.int64)
        """The last attempt at each message; -1 for none."""

    def add(self, message: IntArray, member: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Append attempts, and return their numbers."""
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
        """The attempts of some members that ended after a time and are the last of their message.

        Returns two arrays: indexes into the arguments, which describe one member each, and the
        numbers of the attempts. `count` is the number of messages of a history.
        """
        last = self._last.reshape(-1, count)[history]
        is_match = (self.member[last] == member[:, None]) & (self.end[last] > at[:, None])
        place, message = np.nonzero(is_match & (last >= 0))
        return place, last[place, message]

    def end_of(self, number: IntArray) -> IntArray:
        """When these attempts end; an arbitrary time for -1."""
        return self.end[number]

    def cut(self, number: IntArray, at: IntArray) -> None:
        """End attempts at the death of their members."""
        self.end[number], self.done[number] = at, False

    def all(self) -> Attempts:
        """All attempts so far."""
        until = slice(0, self._count)
        return Attempts(
            message=self.message[until],
            member=self.member[until],
            begin=self.begin[until],
            end=self.end[until],
            done=self.done[until],
        )


def _end_times(line: IntArray, ready: IntArray, work: IntArray) -> IntArray:
    """The end of each message in lines one after the other: end = max(ready, end before) + work.

    end_i = W_i + max over j <= i of (ready_j - W_(j-1)), where W is the cumulative work. Each line
    is lifted above the one before it, so that one running maximum serves all lines.
    """
    summed = np.cumsum(work)
    slack = ready - (summed - work)
    place = np.cumsum(np.diff(line, prepend=line[0]) != 0)
    lift = place * (int(slack.max()) - int(slack.min()) + 1)
    latest: IntArray = np.maximum.accumulate(slack + lift) - lift
    return latest + summed


class _MessagesByStep:
    """Messages by the step, between two changes, in which they become available."""

    def __init__(self, timelines: Sequence[Timeline]) -> None:
        steps = 1 + max(len(timeline.events) for timeline in timelines)
        step = np.concatenate(
            [
                np.searchsorted([at for at, _ in timeline.events], timeline.ready, "right")
                for timeline in timelines
            ]
        )
        self._order = np.argsort(step, kind="stable")
        self._edges = np.concatenate([[0], np.cumsum(np.bincount(step, minlength=steps))])
        self._turn = 0

    def __next__(self) -> IntArray:
        first, last = self._edges[self._turn], self._edges[self._turn + 1]
        self._turn += 1
        return self._order[first:last]
