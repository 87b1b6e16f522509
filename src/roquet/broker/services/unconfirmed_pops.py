"""UnconfirmedPops: pops that moved a group's progress, until their checkpoints are confirmed.

A checkpoint may be cut with the end of the log. Nothing revives its messages then, so they have to
be popped again, whatever became of the pop meanwhile.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

GroupQueue: TypeAlias = tuple[str, str, int]
"""Group, topic and queue id."""


class _Pop(NamedTuple):
    log_end: int
    queue: GroupQueue
    start: int


class UnconfirmedPops:
    """Pops in the order of the log."""

    def __init__(self) -> None:
        self._pops: deque[_Pop] = deque()

    def __len__(self) -> int:
        return len(self._pops)

    def add(self, queue: GroupQueue, start: int, log_end: int) -> None:
        """Note a pop from an offset on whose checkpoint ends in front of a position of the log."""
        self._pops.append(_Pop(log_end, queue, start))

    def settle(self, confirmed: int) -> None:
        """Forget the pops whose checkpoints are confirmed."""
        while self._pops and self._pops[0].log_end <= confirmed:
            self._pops.popleft()

    def clear(self) -> None:
        """Forget all."""
        self._pops.clear()

    def starts(self) -> Mapping[GroupQueue, int]:
        """Offset of each queue that the group's progress must not be beyond."""
        starts: dict[GroupQueue, int] = {}
        for pop in self._pops:
            starts[pop.queue] = min(pop.start, starts.get(pop.queue, pop.start))
        return starts
