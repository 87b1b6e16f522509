"""The epochs of a log, in memory and in their file."""

from pathlib import Path

import pytest

from roquet.broker.replication.stream.epoch_log import EpochLog
from roquet.model.epoch import EpochEntry
from roquet.model.errors import StoreError
from roquet.rules.replication.epochs import EpochExtent
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import EpochFile

PATH = Path("/data/epochFileCheckpoint")


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*pair) for pair in pairs)


def test_a_change_is_in_the_file_at_once() -> None:
    files = MemoryFiles()
    epochs = EpochLog(EpochFile(PATH, files))
    assert (epochs.entries, epochs.latest) == ((), -1)
    epochs.append(1, 0)
    epochs.append(2, 700)
    assert EpochFile(PATH, files).load() == entries((1, 0), (2, 700))
    epochs.truncate(700)
    assert EpochFile(PATH, files).load() == entries((1, 0))
    epochs.append(4, 700)
    epochs.expire(701)
    assert EpochFile(PATH, files).load() == epochs.entries == entries((4, 700))


def test_what_changes_nothing_writes_nothing() -> None:
    files = MemoryFiles()
    epochs = EpochLog(EpochFile(PATH, files))
    epochs.expire(0)
    epochs.truncate(0)
    assert files.contents == {}


def test_the_latest_epoch_is_remembered_though_its_bytes_are_gone() -> None:
    epochs = EpochLog(None)
    epochs.append(3, 0)
    epochs.truncate(0)
    assert epochs.entries == ()
    assert epochs.latest == 3


def test_a_log_without_its_tail_lacks_the_epochs_behind_it() -> None:
    epochs = EpochLog(None)
    epochs.append(1, 0)
    epochs.append(2, 700)
    assert epochs.within(650) == entries((1, 0))
    assert epochs.entries == entries((1, 0), (2, 700))
    assert epochs.extent_at(650) == EpochExtent(EpochEntry(1, 0), 700)


def test_a_damaged_file_without_a_copy_stops_the_start() -> None:
    files = MemoryFiles()
    files.replace(PATH, b"2\n7\n1-0\n")
    with pytest.raises(StoreError, match="epochFileCheckpoint cannot be read"):
        EpochLog(EpochFile(PATH, files))
