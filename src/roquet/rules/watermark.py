"""Watermark: a number that only grows, and its waiters; used for flushes, acks and long polls."""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

W = TypeVar("W")


class Watermark(Generic[W]):
    """A value that never falls, with waiters that each have a target and a deadline.

    A waiter is any value: a future, a name, a reply to be sent. Each is returned exactly once: by
    `advance`, `expire` or `release`.
    """

    __slots__ = ("_turn", "_waiting", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._waiting: list[tuple[int, int, int, W]] = []
        """Heap of (target, turn, deadline, waiter): lowest target first, then first come."""
        self._turn = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, target: int, deadline_ms: int, waiter: W) -> None:
        """Add a waiter for a target that is not reached yet."""
        assert target > self.value, "a target that is reached needs no waiting"
        self._turn += 1
        heappush(self._waiting, (target, self._turn, deadline_ms, waiter))

    def advance(self, value: int) -> list[W]:
        """Raise the value and return the waiters it reaches; a lower value changes nothing."""
        if value <= self.value:
            return []
        self.value = value
        waiting, reached = self._waiting, []
        while waiting and waiting[0][0] <= value:
            reached.append(heappop(waiting)[3])
        return reached

    def expire(self, now_ms: int) -> list[W]:
        """Waiters whose deadline has passed, earliest deadline first."""
        due = sorted((item[2], item[1], item[3]) for item in self._waiting if item[2] <= now_ms)
        if due:
            self._waiting = [item for item in self._waiting if item[2] > now_ms]
            heapify(self._waiting)
        return [waiter for _, _, waiter in due]

    def release(self) -> list[W]:
        """All waiters: there will be no more updates."""
        left, self._waiting = sorted(self._waiting), []
        return [item[3] for item in left]

    def next_deadline(self) -> int | None:
        """Earliest deadline of the waiters; None without waiters."""
        return min((item[2] for item in self._waiting), default=None)
