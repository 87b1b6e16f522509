from pathlib import Path
from typing import cast

import pytest

from roquet.model.errors import MessageIllegal
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_ends import QueueEnd, unpack_ends
from roquet.store.consume_queue.queues import CheckpointEnds, ConsumeQueues, RemovedQueues
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.filesystem.segments import Segments
from roquet.store.layout import ENTRY_SIZE


def make_queues(files: MemoryFiles, file_entries: int = 10) -> ConsumeQueues:
    return ConsumeQueues(MapPool(files, 9), Path("/cq"), file_entries, 60)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def queues(files: MemoryFiles) -> ConsumeQueues:
    return make_queues(files)


def put(queue: ConsumeQueue, *positions: int, size: int = 5) -> None:
    for position in positions:
        if queue.end >= queue.capacity:
            queue.reserve()
        queue.put(position, size, -position)


def reopened(queues: ConsumeQueues) -> ConsumeQueues:
    again = make_queues(cast("MemoryFiles", queues.files))
    for topic, queue_id in queues.names():
        again.add(topic, queue_id)
    return again


def test_a_queue_is_there_when_it_has_been_obtained(queues: ConsumeQueues) -> None:
    assert queues.get("T", 1) is None
    queue = queues.obtain("T", 1)
    assert queues.get("T", 1) is queue
    assert (queues.topics(), queues.ids("T"), queues.ids("U")) == (["T"], [1], [])


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("", 0), (".", 0), ("..", 0), ("a/b", 0), ("a\\b", 0), ("a\0", 0), ("a", -1), ("é" * 128, 0)],
)
def test_names_that_are_no_directory_are_refused(
    queues: ConsumeQueues, topic: str, queue_id: int
) -> None:
    with pytest.raises(MessageIllegal, match="cannot be the name of a directory"):
        queues.obtain(topic, queue_id)


def test_files_in_front_of_a_position_go_but_not_the_last(queues: ConsumeQueues) -> None:
    put(queues.obtain("T", 0), *range(0, 250, 10))
    assert queues.drop_before("T", 0, 85) == []
    assert len(queues.drop_before("T", 0, 105)) == 1
    assert len(queues.drop_before("T", 0, 10_000)) == 1
    queue = reopened(queues).obtain("T", 0)
    assert (queue.begin, queue.end) == (20, 25)
    assert queues.drop_before("T", 5, 10) == []


def test_lost_messages_are_those_whose_records_begin_in_a_hole(queues: ConsumeQueues) -> None:
    put(queues.obtain("T", 0), 0, 10, 30)
    put(queues.obtain("T", 1), 20)
    found = [(x.topic, x.queue_id, x.first, x.stop) for x in queues.lost_in(5, 25)]
    assert found == [("T", 0, 1, 2), ("T", 1, 0, 1)]


def test_the_end_of_the_last_record_of_all_queues(queues: ConsumeQueues) -> None:
    assert queues.last_record_end() == 0
    put(queues.obtain("T", 0), 0, 10)
    put(queues.obtain("T", 1), 100)
    queues.obtain("T", 2)
    assert queues.last_record_end() == 105


def test_a_removed_topic_leaves_no_files(queues: ConsumeQueues, files: MemoryFiles) -> None:
    put(queues.obtain("T", 0), 1)
    put(queues.obtain("U", 0), 1)
    queues.remove("T")
    assert queues.topics() == ["U"]
    assert list(queues.files.list(Path("/cq"))) == ["U"]
    assert queues.obtain("T", 0).end == 0


def test_a_queue_is_removed_alone_and_the_last_one_with_its_topic(queues: ConsumeQueues) -> None:
    for queue_id in (0, 1):
        queues.obtain("T", queue_id)
    queues.remove_one("T", 0)
    assert (queues.ids("T"), queues.get("T", 0)) == ([1], None)
    queues.remove_one("T", 1)
    assert queues.topics() == []


def test_a_queue_whose_directory_was_listed_is_not_listed_again(queues: ConsumeQueues) -> None:
    queue = queues.obtain("t", 0)
    put(queue, 0, 5)
    queues.unload(queue)
    queues.listed["t", 0] = {"00000000000000000000": queues.file_size}
    queues.listed["t", 1] = {}
    found = queues.get("t", 0)
    assert found is not None
    assert found.end == 2
    assert queues.listed == {("t", 1): {}}
    queues.add("t", 1)
    queues.remove_one("t", 1)
    queues.remove("t")
    assert queues.listed == {}


def crowded(maps_max: int = 1) -> ConsumeQueues:
    """Queues of which only a few can be mapped."""
    return ConsumeQueues(MapPool(MemoryFiles(), maps_max), Path("/cq"), 10, 60)


def test_unloading_a_queue_writes_what_it_kept() -> None:
    queues = crowded()
    put(queues.obtain("T", 0), 10)
    queue = queues.obtain("T", 1)
    put(queue, 10, 20)
    tail = queue.tail
    assert tail is not None
    assert tail.buffered
    queues.unload(queue)
    again = queues.get("T", 1)
    assert again is not None
    assert again is not queue
    assert [again.entry(n)[0] for n in range(again.end)] == [10, 20]


REMOVED = Path("/cq-removed")


def make_directory(files: MemoryFiles, path: Path) -> Path:
    files.replace(path / "0" / "00", b"entries")
    return path


def test_directories_are_moved_away_under_numbers_that_are_free() -> None:
    files = MemoryFiles()
    removed = RemovedQueues(files, REMOVED)
    removed.move_in(make_directory(files, Path("/cq/T")))
    removed.move_in(make_directory(files, Path("/cq/U")))
    assert sorted(files.list(REMOVED)) == ["1", "2"]
    files.remove(REMOVED / "1")
    removed.move_in(make_directory(files, Path("/cq/V")))
    assert sorted(files.list(REMOVED)) == ["2", "3"], "2 is in use"
    assert not files.list(Path("/cq"))


def test_clearing_deletes_every_removed_directory() -> None:
    files = MemoryFiles()
    removed = RemovedQueues(files, REMOVED)
    removed.move_in(make_directory(files, Path("/cq/T")))
    removed.clear()
    assert not files.list(REMOVED)


NAME = ("T", 0)


@pytest.fixture
def queue() -> ConsumeQueue:
    pool = MapPool(MemoryFiles(), 9)
    return ConsumeQueue("T", 0, Segments(pool, Path("/cq/T/0"), 10 * ENTRY_SIZE), 60)


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
