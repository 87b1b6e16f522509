import pytest
from tests.store.conftest import NOW, DataDir, fill

from roquet.rules.retention import DiskUsage
from roquet.store.store import Store


@pytest.fixture
def store(store_dir: DataDir) -> Store:
    return store_dir.open()


def test_queues_in_use_are_listed_with_their_ends(store: Store) -> None:
    fill(store, 3)
    fill(store, 1, topic="U", queue_id=2)
    assert sorted(store.queue_stats.ends()) == [("T", 0, 3), ("U", 2, 1)]


def test_a_queue_unused_since_the_opening_is_not_listed(store_dir: DataDir) -> None:
    first = store_dir.open()
    fill(first, 3)
    first.close(NOW)
    store = store_dir.open()
    assert list(store.queue_stats.ends()) in ([], [("T", 0, 3)])
    assert store.queue_stats.has("T", 0)
    assert list(store.queue_stats.ends()) == [("T", 0, 3)]


def test_only_existing_queues_are_known(store: Store) -> None:
    fill(store, 1)
    queue_stats = store.queue_stats
    assert queue_stats.has("T", 0)
    assert [queue_stats.has("T", -1), queue_stats.has("T", 1), queue_stats.has("U", 0)] == [
        False
    ] * 3
    assert queue_stats.size("U", 0, 0, 9) == queue_stats.offset_since("U", 0, 0) == 0
    assert queue_stats.entries("U", 0, 0, 9) == []


def test_sizes_and_entries_are_those_of_the_records(store: Store) -> None:
    stored = fill(store, 120)  # over files of 50 entries
    sizes = [one.size for one in stored]
    queue_stats = store.queue_stats
    assert queue_stats.size("T", 0, 0, 120) == sum(sizes)
    assert queue_stats.size("T", 0, 40, 999) == sum(sizes[40:])
    found = queue_stats.entries("T", 0, 45, 60)
    assert [(position, size) for position, size, _ in found] == [
        (one.position, one.size) for one in stored[45:105]
    ]
    assert queue_stats.entries("T", 0, 118, 60) == queue_stats.entries("T", 0, 118, 2)
    assert queue_stats.entries("T", 0, 120, 5) == queue_stats.entries("T", 0, 0, 0) == []


def test_messages_after_a_position_are_counted(store: Store) -> None:
    fill(store, 5)
    position = store.end_position
    fill(store, 2)
    assert store.queue_stats.offset_since("T", 0, position) == 5


def test_expired_messages_are_not_counted(store: Store) -> None:
    fill(store, 200)
    store.flush_all(NOW)
    gone = store.expire(NOW + 10**12, DiskUsage(100, 20))
    assert gone
    least, _ = store.bounds("T", 0)
    assert least > 0
    assert store.queue_stats.entries("T", 0, 0, 5) == []
    assert store.queue_stats.size("T", 0, 0, 200) == store.queue_stats.size("T", 0, least, 200) > 0


def test_the_disk_of_the_directory_is_reported(store: Store) -> None:
    assert store.disk.total >= store.disk.free >= 0
