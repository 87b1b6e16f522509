from pathlib import Path

import pytest

from roquet.store.consume_queue.checkpoint_ends import CheckpointEnds
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_ends import QueueEnd, unpack_ends
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.filesystem.segments import Segments
from roquet.store.layout import ENTRY_SIZE

NAME = ("T", 0)


@pytest.fixture
def queue() -> ConsumeQueue:
    pool = MapPool(MemoryFiles(), 9)
    return ConsumeQueue("T", 0, Segments(pool, Path("/cq/T/0"), 10 * ENTRY_SIZE), 60)


def put(queue: ConsumeQueue, position: int) -> None:
    queue.reserve()
    queue.put(position, 5, 0)


def packed(ends: CheckpointEnds) -> dict[tuple[str, int], QueueEnd]:
    unpacked = unpack_ends(ends.pack(0, 1_000))
    assert unpacked is not None
    return dict(unpacked.ends)


def test_a_noted_queue_is_recorded_with_its_last_position(queue: ConsumeQueue) -> None:
    ends = CheckpointEnds()
    ends.note(queue)
    assert packed(ends) == {}, "it has no messages"
    put(queue, 100)
    put(queue, 105)
    ends.note(queue)
    assert packed(ends) == {NAME: QueueEnd(0, 2, 105)}
    ends.note(queue)
    assert packed(ends) == {NAME: QueueEnd(0, 2, 105)}
    ends.forget(NAME)
    assert packed(ends) == {}


def test_ends_of_the_last_checkpoint_stay_until_a_queue_is_noted(queue: ConsumeQueue) -> None:
    ends = CheckpointEnds()
    assert not ends.has_checkpoint
    ends.load({NAME: QueueEnd(0, 1, 70), ("U", 3): QueueEnd(4, 4, -1)})
    assert ends.has_checkpoint
    put(queue, 100)
    put(queue, 110)
    ends.note(queue)
    assert packed(ends) == {NAME: QueueEnd(0, 2, 110), ("U", 3): QueueEnd(4, 4, -1)}
