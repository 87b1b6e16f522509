"""Pop: checkpoints, invisible times, revival, and how many messages a member takes at once.

    pop ──▶ checkpoint ──▶ acknowledged: finished
                     └───▶ invisible time over: the rest is delivered again, then finished

Each pop of a queue is one checkpoint. A bit set says which messages it delivered, so an
acknowledgement costs the same for one message as for all of them. The limits are those of Apache's
PopMessageProcessor, PopCheckPoint and PopReviveService.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, MessageQueues

COUNT_MAX: Final = 32
"""Messages of one pop."""

LATE_MS: Final = 500
"""A pop that comes this long after its client gave up gets no answer."""

RETRY_FIRST_PERCENT: Final = 20
"""Share of pops that look at retried messages before new ones."""

POLLING_MAX: Final = 1_024
"""Waiting pops of one group and topic."""

REVIVE_LAG_MAX: Final = 10_000
"""Records of a revive queue behind the oldest open checkpoint: an older checkpoint is written
again, so that a restart has few records of each queue to read. With many checkpoints in flight the
limit is twice their number: a checkpoint that is written again must not itself push the next one
too far back."""

FINISHED_MAX: Final = 1_024
"""Finished checkpoints that may still wait for their time, in addition to as many as are open."""

PREFETCH_MS: Final = 250
"""A member takes what it handles within this time: nobody else can get what it holds back."""

CheckpointKey = tuple[str, str, int, int, int]
"""Group, topic, queue id, start offset and time of a pop: what an acknowledgement names."""


class PopCheckpoint(msgspec.Struct, gc=False):
    """One pop of one queue, and the messages it delivered."""

    group: str
    topic: str
    """Topic that holds the messages: for retried ones, the retry topic."""
    queue_id: int
    start: int
    """First offset of the pop: bit n is the message at offset `start + n`."""
    pop_ms: int
    invisible_ms: int
    delivered: int
    left: int
    """Messages neither acknowledged nor delivered again."""
    revive_queue_id: int
    """Queue of the revive topic that holds the checkpoint, and its offset there."""
    revive_offset: int
    is_suspended: bool = False
    """Whether the next delivery does not count as a try."""

    @property
    def key(self) -> CheckpointKey:
        """Key that acknowledgements name."""
        return self.group, self.topic, self.queue_id, self.start, self.pop_ms

    @property
    def due_ms(self) -> int:
        """Time at which the remaining messages are delivered again."""
        return self.pop_ms + self.invisible_ms

    @property
    def next_offset(self) -> int:
        """Offset behind the last delivered message."""
        return self.start + self.delivered.bit_length()

    def bit(self, offset: int) -> int:
        """Bit of a message; 0 if the pop did not deliver it."""
        step = offset - self.start
        return 1 << step & self.delivered if 0 <= step < self.delivered.bit_length() else 0


class OpenCheckpoints:
    """All unfinished checkpoints: by key, by time, and in the order of the revive topic."""

    def __init__(self) -> None:
        self._by_key: dict[CheckpointKey, PopCheckpoint] = {}
        self._due: list[tuple[int, int, PopCheckpoint]] = []
        self._queues: dict[int, deque[PopCheckpoint]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[PopCheckpoint]:
        return iter(self._by_key.values())

    @property
    def scheduled_count(self) -> int:
        """Number of scheduled looks, with those at finished checkpoints."""
        return len(self._due)

    def find(self, key: CheckpointKey) -> PopCheckpoint | None:
        """Checkpoint that an acknowledgement names, unless it is finished."""
        return self._by_key.get(key)

    def add(self, checkpoint: PopCheckpoint) -> None:
        """Add a checkpoint; replaces an earlier record of the same pop."""
        before = self._by_key.get(key := checkpoint.key)
        if before is not None:
            checkpoint.left &= before.left
            before.left = 0
        if not checkpoint.left:
            self._by_key.pop(key, None)
            return
        self._by_key[key] = checkpoint
        self.retry(checkpoint, checkpoint.due_ms)
        self._queues.setdefault(checkpoint.revive_queue_id, deque()).append(checkpoint)

    def settle(self, checkpoint: PopCheckpoint, bits: int) -> int:
        """Remove messages from a checkpoint; returns those that were still open."""
        bits &= checkpoint.left
        checkpoint.left ^= bits
        if bits and not checkpoint.left:
            del self._by_key[checkpoint.key]
        return bits

    def take_due(self, now_ms: int) -> PopCheckpoint | None:
        """A checkpoint whose time has passed; the caller settles it or has it retried."""
        due = self._due
        while due and (due[0][0] <= now_ms or not due[0][2].left):
            checkpoint = heappop(due)[2]
            if checkpoint.left:
                return checkpoint
        return None

    def retry(self, checkpoint: PopCheckpoint, at_ms: int) -> None:
        """Look at a checkpoint again at a time."""
        self._turn += 1
        heappush(self._due, (at_ms, self._turn, checkpoint))
        if len(self._due) > 2 * len(self._by_key) + FINISHED_MAX:
            self._due = [entry for entry in self._due if entry[2].left]
            heapify(self._due)

    def clock_set_back(self, now_ms: int) -> None:
        """Shorten waits to the invisible time, from now on.

        Messages that were delivered while the clock was ahead would otherwise wait until that time
        comes again.
        """
        self._due = [
            (min(at_ms, now_ms + checkpoint.invisible_ms), turn, checkpoint)
            for at_ms, turn, checkpoint in self._due
        ]
        heapify(self._due)

    def lag_max(self) -> int:
        """Number of records that the oldest checkpoint of a revive queue may lag behind."""
        return max(REVIVE_LAG_MAX, 2 * len(self))

    def oldest(self, revive_queue_id: int) -> PopCheckpoint | None:
        """First unfinished checkpoint of a revive queue: the group's progress there."""
        queue = self._queues.get(revive_queue_id, _NONE)
        while queue and not queue[0].left:
            queue.popleft()
        return queue[0] if queue else None

    def moved(self, checkpoint: PopCheckpoint, revive_offset: int) -> None:
        """Record that the oldest checkpoint of a revive queue was written again, behind others."""
        queue = self._queues[checkpoint.revive_queue_id]
        assert queue[0] is checkpoint, "only the oldest is moved"
        queue.popleft()
        checkpoint.revive_offset = revive_offset
        queue.append(checkpoint)


_NONE: Final[deque[PopCheckpoint]] = deque()


def bits_of(offsets: Iterable[int], start: int) -> int:
    """Bit set of offsets; bit 0 is the offset `start`."""
    bits = 0
    for offset in offsets:
        bits |= 1 << offset - start
    return bits


def offsets_of(bits: int, start: int) -> list[int]:
    """Offsets of such a bit set, in order."""
    offsets = []
    while bits:
        low = bits & -bits
        offsets.append(start + low.bit_length() - 1)
        bits ^= low
    return offsets


def next_batch_size(count: int, taken: int, handled_in_ms: int, count_max: int = COUNT_MAX) -> int:
    """Number of messages to take, after the last `taken` were handled in `handled_in_ms`.

    Nobody else can handle what a slow member has taken, so it takes what it handles in 250 ms. A
    fast one takes twice as many each time, up to the limit.
    """
    if handled_in_ms <= 0:
        return min(count * 2, count_max)
    fitting = PREFETCH_MS * taken // handled_in_ms
    return max(1, min(fitting, count * 2, count_max))


ANY_QUEUE = -1
"""Queue id that stands for all queues of a broker."""


def is_shared_by_all(members: int, shared: int) -> bool:
    """Whether this number of shared queues makes each member work on all of them.

    Popping balances by the message, so a queue may have several members: either all of them, or its
    own and the next few. Apache's rule: no number set, or as many as there are other members.
    """
    return shared <= 0 or shared >= members - 1


def all_queues(queues: MessageQueues) -> MessageQueues:
    """One address with ANY_QUEUE for each broker."""
    brokers = sorted({(queue.topic, queue.broker_name) for queue in queues})
    return [MessageQueue(topic, broker, ANY_QUEUE) for topic, broker in brokers]


def member_pop_queues(
    member: str, queues: MessageQueues, members: Sequence[str], shares: GroupAssignment, shared: int
) -> MessageQueues:
    """Queues that a member pops from: its share and those of the next `shared` members.

    With more members than queues each has one, by its index, so that nobody is left without. Queues
    and members are sorted; the shares are those of pulling. A member that is not listed has no
    queues.
    """
    if member not in members:
        return ()
    if is_shared_by_all(len(members), shared):
        return all_queues(queues)
    index = list(members).index(member)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    sharing = [members[(index + step) % len(members)] for step in range(shared + 1)]
    return [queue for other in sharing for queue in shares.get(other, ())]
