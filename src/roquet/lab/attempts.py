"""Handled: who began which message when, and when it ended: what both ways of balance leave."""

from collections.abc import Sequence

import msgspec
import numpy as np

from roquet.lab.timeline import NEVER, IntArray, Timeline


class SimulatedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of many histories, one behind the other, each in the order of sending."""

    count: int
    """Of one history."""
    sent: IntArray
    ready: IntArray
    queue: IntArray
    key: IntArray
    work: IntArray

    @classmethod
    def of(cls, courses: Sequence[Timeline]) -> "SimulatedMessages":
        """Those of courses of the same scenario."""
        return cls(
            count=len(courses[0].sent),
            sent=np.concatenate([course.sent for course in courses]),
            ready=np.concatenate([course.ready for course in courses]),
            queue=np.concatenate([course.queue for course in courses]),
            key=np.concatenate([course.key for course in courses]),
            work=np.concatenate([course.work for course in courses]),
        )


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Every time that somebody began with a message."""

    message: IntArray
    member: IntArray
    begin: IntArray
    end: IntArray
    """When it ended, or who was at it died."""
    done: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def first(self, messages: int) -> tuple[IntArray, IntArray, IntArray]:
        """When each message was begun and ended first, and by whom; NEVER and -1 for none.

        The try that counts is the one that ended first: that is when the work was done.
        """
        done = np.flatnonzero(self.done)
        order = done[np.lexsort((self.end[done], self.message[done]))]
        whose = self.message[order]
        firsts = order[np.flatnonzero(np.diff(whose, prepend=-1))]
        begin = np.full(messages, NEVER, np.int64)
        end = np.full(messages, NEVER, np.int64)
        member = np.full(messages, -1, np.int64)
        begin[self.message[firsts]] = self.begin[firsts]
        end[self.message[firsts]] = self.end[firsts]
        member[self.message[firsts]] = self.member[firsts]
        return begin, end, member


class QueuePauses(msgspec.Struct, frozen=True, kw_only=True):
    """When queues stood still, or popped messages came back: where, from when to when."""

    history: IntArray
    begin: IntArray
    end: IntArray
