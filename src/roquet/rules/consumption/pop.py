"""Invisible time, checkpoints, revival, and how much a member takes at once.

    pop ──▶ checkpoint ──▶ acknowledged: over
                     └───▶ its time has passed: what is left comes again, then it is over

Each pop of a queue is one checkpoint: which messages it gave out stands in a bit set, so that an
acknowledgement costs the same for one message as for all of them. The limits are those of the
genuine broker (PopMessageProcessor, PopCheckPoint, PopReviveService).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

COUNT_MAX: Final = 32
"""Messages of one pop."""

LATE_MS: Final = 500
"""A pop that comes so long after its client gave up is not worth an answer."""

RETRY_FIRST_PERCENT: Final = 20
"""How often messages that come again go before new ones."""

POLLING_MAX: Final = 1_024
"""Pops of one group and topic that wait at one time."""

REVIVE_LAG_MAX: Final = 10_000
"""Records of a revive queue behind the oldest that counts: a checkpoint further back is written
anew, so that a restart has few of each queue to read. With many in flight it is twice as many as
they are: what is written anew must not itself push the next one too far back."""

FINISHED_MAX: Final = 1_024
"""Checkpoints that are over and yet wait for their time, besides as many as are not over."""

PREFETCH_MS: Final = 250
"""A member takes what it handles in so long: what it holds back nobody else can have."""

CheckpointKey = tuple[str, str, int, int, int]
"""Group, topic, queue id, where the pop began, when it was: what acknowledgements name."""


class PopCheckpoint(msgspec.Struct, gc=False):
    """What one pop of one queue gave out."""

    group: str
    topic: str
    """The one that the messages lie in: the retry topic's own name."""
    queue_id: int
    start: int
    """Where the pop began: bit n is the message at offset `start + n`."""
    pop_ms: int
    invisible_ms: int
    delivered: int
    left: int
    """Those neither acknowledged nor given out anew."""
    revive_queue_id: int
    """The queue of the revive topic where it is noted, and the offset there."""
    revive_offset: int

    @property
    def key(self) -> CheckpointKey:
        """What acknowledgements name."""
        return self.group, self.topic, self.queue_id, self.start, self.pop_ms

    @property
    def due_ms(self) -> int:
        """When what is left comes again."""
        return self.pop_ms + self.invisible_ms

    @property
    def next_offset(self) -> int:
        """Behind the last message that it gave out."""
        return self.start + self.delivered.bit_length()

    def bit(self, offset: int) -> int:
        """The bit of a message; 0 when it was not given out."""
        step = offset - self.start
        return 1 << step & self.delivered if 0 <= step < self.delivered.bit_length() else 0


class OpenCheckpoints:
    """All checkpoints that are not over: found by key, by time, and in the order of their notes."""

    def __init__(self) -> None:
        self._by_key: dict[CheckpointKey, PopCheckpoint] = {}
        self._due: list[tuple[int, int, PopCheckpoint]] = []
        self._queues: dict[int, deque[PopCheckpoint]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[PopCheckpoint]:
        return iter(self._by_key.values())

    def find(self, key: CheckpointKey) -> PopCheckpoint | None:
        """The checkpoint that an acknowledgement names, unless it is over."""
        return self._by_key.get(key)

    def add(self, found: PopCheckpoint) -> None:
        """One more; one that was noted before takes the place of its former note."""
        before = self._by_key.get(key := found.key)
        if before is not None:
            found.left &= before.left
            before.left = 0
        if not found.left:
            self._by_key.pop(key, None)
            return
        self._by_key[key] = found
        self.retry(found, found.due_ms)
        self._queues.setdefault(found.revive_queue_id, deque()).append(found)

    def settle(self, found: PopCheckpoint, bits: int) -> int:
        """These of its messages are dealt with; gives those that were not before."""
        bits &= found.left
        found.left ^= bits
        if bits and not found.left:
            del self._by_key[found.key]
        return bits

    def take_due(self, now_ms: int) -> PopCheckpoint | None:
        """One whose time has passed; whoever takes it settles it, or has it retried."""
        due = self._due
        while due and (due[0][0] <= now_ms or not due[0][2].left):
            found = heappop(due)[2]
            if found.left:
                return found
        return None

    def retry(self, found: PopCheckpoint, at_ms: int) -> None:
        """Look at it at a time."""
        self._turn += 1
        heappush(self._due, (at_ms, self._turn, found))
        if len(self._due) > 2 * len(self._by_key) + FINISHED_MAX:
            self._due = [entry for entry in self._due if entry[2].left]
            heapify(self._due)

    def clock_set_back(self, now_ms: int) -> None:
        """Nothing waits for longer than it was to be invisible, from now on.

        What was given out while the clock was ahead would else wait until that time comes again.
        """
        self._due = [
            (min(at_ms, now_ms + found.invisible_ms), turn, found)
            for at_ms, turn, found in self._due
        ]
        heapify(self._due)

    def lag_max(self) -> int:
        """How many records the oldest of a revive queue may lie back."""
        return max(REVIVE_LAG_MAX, 2 * len(self))

    def oldest(self, revive_queue_id: int) -> PopCheckpoint | None:
        """The first of a revive queue that is not over: the group's progress there."""
        queue = self._queues.get(revive_queue_id, _NONE)
        while queue and not queue[0].left:
            queue.popleft()
        return queue[0] if queue else None

    def moved(self, found: PopCheckpoint, revive_offset: int) -> None:
        """The oldest of its revive queue was noted anew, behind all others."""
        queue = self._queues[found.revive_queue_id]
        assert queue[0] is found, "only the oldest is moved"
        queue.popleft()
        found.revive_offset = revive_offset
        queue.append(found)


_NONE: Final[deque[PopCheckpoint]] = deque()


def bits_of(offsets: Iterable[int], start: int) -> int:
    """A set of offsets from `start` on."""
    bits = 0
    for offset in offsets:
        bits |= 1 << offset - start
    return bits


def offsets_of(bits: int, start: int) -> list[int]:
    """The offsets of such a set, in order."""
    found = []
    while bits:
        low = bits & -bits
        found.append(start + low.bit_length() - 1)
        bits ^= low
    return found


def next_batch_size(count: int, taken: int, handled_in_ms: int, count_max: int = COUNT_MAX) -> int:
    """How many messages to take, when the last `taken` were handled in so long.

    What a slow member has taken nobody else can handle, so it takes what it handles in 250 ms. A
    fast one takes twice as many each time, up to the limit.
    """
    if handled_in_ms <= 0:
        return min(count * 2, count_max)
    fitting = PREFETCH_MS * taken // handled_in_ms
    return max(1, min(fitting, count * 2, count_max))
