from pathlib import Path

from roquet.store.consume_queue.removed_queues import RemovedQueues
from roquet.store.filesystem.memory_files import MemoryFiles

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
