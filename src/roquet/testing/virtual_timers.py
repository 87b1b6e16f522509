"""Timers and callbacks of a virtual loop: timers in the order of time, and then of their calls.

Entries are tuples, which are compared without a call of Python: asyncio's own timers are compared
by a method, and a simulation makes thousands of them a second.
"""

import heapq
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context
from itertools import count
from typing import Final

CANCELLED_MIN: Final = 100
"""Cancelled timers that stay in the heap whatever their share is."""


class VirtualCallback(Handle):
    """A callback that runs in the next turn of a virtual loop."""

    __slots__ = ()

    _context: Context

    @property
    def context(self) -> Context:
        """The context that it runs in; of asyncio's own handles only Python 3.12 tells it."""
        return self._context


class VirtualTimer(TimerHandle):
    """A callback that runs at a time."""

    is_scheduled = False
    """Whether it is among the timers of its loop."""
    _context: Context

    @property
    def context(self) -> Context:
        """The context that it runs in."""
        return self._context


class VirtualTimers:
    """A heap of timers; those that are cancelled are dropped when they come to its top."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, VirtualTimer]] = []
        self._numbers = count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, timer: VirtualTimer) -> None:
        """Add a timer."""
        timer.is_scheduled = True
        heapq.heappush(self._heap, (timer.when(), next(self._numbers), timer))

    def note_cancelled(self) -> None:
        """Note that a timer was cancelled; when most of them are, they are dropped."""
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_MIN, len(self._heap) // 2):
            self.remove(lambda timer: timer.cancelled())

    def next_when(self) -> float | None:
        """Time of the first timer that is not cancelled; None without one."""
        heap = self._heap
        while heap and heap[0][2].cancelled():
            self._drop()
        return heap[0][0] if heap else None

    def pop_due(self, end: float) -> list[VirtualTimer]:
        """Remove and return the timers that are due before a time."""
        due, heap = list[VirtualTimer](), self._heap
        while heap and heap[0][0] < end:
            timer = heapq.heappop(heap)[2]
            timer.is_scheduled = False
            due.append(timer)
        return due

    def remove(self, is_meant: Callable[[VirtualTimer], bool]) -> list[VirtualTimer]:
        """Remove timers, and return those that are not cancelled, in the order of their calls."""
        removed, kept = list[VirtualTimer](), list[tuple[float, int, VirtualTimer]]()
        for entry in sorted(self._heap, key=lambda entry: entry[1]):
            timer = entry[2]
            if not timer.cancelled() and not is_meant(timer):
                kept.append(entry)
                continue
            timer.is_scheduled = False
            if not timer.cancelled():
                removed.append(timer)
        heapq.heapify(kept)
        self._heap, self._cancelled = kept, 0
        return removed

    def _drop(self) -> None:
        heapq.heappop(self._heap)[2].is_scheduled = False
        self._cancelled -= 1
