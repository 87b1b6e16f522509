"""VirtualTimers: the timers of a virtual loop, in the order of time and then of their calls.

Entries are tuples, which are compared without a call of Python: asyncio's own timers are compared
by a method, and a simulation makes thousands of them a second.
"""

import heapq
from asyncio import TimerHandle
from collections.abc import Callable
from itertools import count
from typing import Any, Final

CANCELLED_MIN: Final = 100
"""Cancelled timers that stay in the heap whatever their share is."""


class VirtualTimers:
    """A heap of timers; those that are cancelled are dropped when they come to its top."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any]] = []  # handles have no public fields
        self._numbers = count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, timer: TimerHandle) -> None:
        """Add a timer."""
        handle: Any = timer
        handle._scheduled = True
        heapq.heappush(self._heap, (handle._when, next(self._numbers), handle))

    def note_cancelled(self) -> None:
        """Note that a timer was cancelled; when most of them are, they are dropped."""
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_MIN, len(self._heap) // 2):
            self.remove(lambda timer: timer.cancelled())

    def next_when(self) -> float | None:
        """Time of the first timer that is not cancelled; None without one."""
        heap = self._heap
        while heap and heap[0][2]._cancelled:
            self._drop()
        return heap[0][0] if heap else None

    def pop_due(self, end: float) -> list[Any]:
        """Remove and return the handles that are due before a time."""
        due, heap = list[Any](), self._heap
        while heap and heap[0][0] < end:
            handle = heapq.heappop(heap)[2]
            handle._scheduled = False
            due.append(handle)
        return due

    def remove(self, is_meant: Callable[[TimerHandle], bool]) -> list[TimerHandle]:
        """Remove timers, and return those that are not cancelled, in the order of their calls."""
        removed, kept = list[TimerHandle](), list[tuple[float, int, Any]]()
        for entry in sorted(self._heap, key=lambda entry: entry[1]):
            handle = entry[2]
            if not handle._cancelled and not is_meant(handle):
                kept.append(entry)
                continue
            handle._scheduled = False
            if not handle._cancelled:
                removed.append(handle)
        heapq.heapify(kept)
        self._heap, self._cancelled = kept, 0
        return removed

    def _drop(self) -> None:
        heapq.heappop(self._heap)[2]._scheduled = False
        self._cancelled -= 1
