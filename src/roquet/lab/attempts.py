"""Attempts: who handled which message when, as both the queue and the pop model return it."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from roquet.lab.timeline import NEVER, IntArray, Timeline


class SimulatedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of many histories, one history after the other, each in the order of sending."""

    count: int
    """Messages of one history."""
    sent: IntArray
    ready: IntArray
    queue: IntArray
    key: IntArray
    work: IntArray

    @classmethod
    def of(cls, timelines: Sequence[Timeline]) -> "SimulatedMessages":
        """The messages of timelines of one scenario."""
        return cls(
            count=len(timelines[0].sent),
            sent=np.concatenate([timeline.sent for timeline in timelines]),
            ready=np.concatenate([timeline.ready for timeline in timelines]),
            queue=np.concatenate([timeline.queue for timeline in timelines]),
            key=np.concatenate([timeline.key for timeline in timelines]),
            work=np.concatenate([timeline.work for timeline in timelines]),
        )


class FirstAttempts(NamedTuple):
    """The first finished attempt at each message; NEVER and member -1 where there is none."""

    begin: IntArray
    end: IntArray
    member: IntArray


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Every attempt to handle a message, as columns."""

    message: IntArray
    member: IntArray
    begin: IntArray
    end: IntArray
    """When it ended, or when its member died."""
    done: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def first(self, messages: int) -> FirstAttempts:
        """The attempt at each message that ended first, which is when the work was done."""
        done = np.flatnonzero(self.done)
        order = done[np.lexsort((self.end[done], self.message[done]))]
        firsts = order[np.flatnonzero(np.diff(self.message[order], prepend=-1))]
        begin = np.full(messages, NEVER, np.int64)
        end = np.full(messages, NEVER, np.int64)
        member = np.full(messages, -1, np.int64)
        begin[self.message[firsts]] = self.begin[firsts]
        end[self.message[firsts]] = self.end[firsts]
        member[self.message[firsts]] = self.member[firsts]
        return FirstAttempts(begin, end, member)


class QueuePauses(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of queues, or returns of popped messages, as columns: history, begin and end."""

    history: IntArray
    begin: IntArray
    end: IntArray
