"""Epoch files survive a crash, and a damaged one is replaced by its copy."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.replication.conftest import VECTORS

from roquet.model.epoch import EpochEntry
from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication import epoch_file

GENUINE = (VECTORS / "epochFileCheckpoint.five-entries").read_bytes()
ONE, TWO = (EpochEntry(1, 0),), (EpochEntry(1, 0), EpochEntry(2, 1075))
PATH = Path("/data") / epoch_file.FILE_NAME
BACKUP = PATH.with_name(epoch_file.FILE_NAME + ".bak")


def test_a_genuine_file_is_read() -> None:
    files = MemoryFiles()
    files.replace(PATH, GENUINE)
    epochs = epoch_file.EpochFile(PATH, files).load()
    assert [(entry.epoch, entry.start) for entry in epochs] == [
        (1, 0), (2, 1075), (3, 2574), (4, 3861), (5, 4921)
    ]  # fmt: skip


def test_without_a_file_there_are_no_epochs(tmp_path: Path) -> None:
    assert epoch_file.EpochFile(tmp_path / epoch_file.FILE_NAME).load() == ()


def test_the_copy_has_the_same_epochs(tmp_path: Path) -> None:
    file = epoch_file.EpochFile(tmp_path / epoch_file.FILE_NAME)
    for epochs in (ONE, TWO, ONE):
        file.save(epochs)
        assert epoch_file.EpochFile(tmp_path / epoch_file.FILE_NAME).load() == epochs
        assert epoch_file.EpochFile(tmp_path / (epoch_file.FILE_NAME + ".bak")).load() == epochs


def test_a_crash_between_file_and_copy_leaves_the_former_epochs() -> None:
    class Dying(MemoryFiles):
        def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
            super().replace(path, data, keep=keep)
            if path == BACKUP and data != epoch_file.encode_epoch_file(ONE):
                raise StoreError("the process is killed")

    files = Dying()
    file = epoch_file.EpochFile(PATH, files)
    file.save(ONE)
    with pytest.raises(StoreError, match="killed"):
        file.save(TWO)
    assert epoch_file.EpochFile(PATH, files).load() == ONE


def test_an_empty_list_is_kept_and_leaves_no_copy() -> None:
    files = MemoryFiles()
    file = epoch_file.EpochFile(PATH, files)
    file.save(ONE)
    file.save(TWO)
    file.save(())
    assert epoch_file.EpochFile(PATH, files).load() == ()
    assert BACKUP not in files.contents
    files.remove(PATH)
    assert epoch_file.EpochFile(PATH, files).load() == ()


@pytest.mark.parametrize("damage", [b"", b"2\n17\n1-0\n2-1075\n", b"\xff"])
def test_the_copy_is_taken_for_a_damaged_file(
    damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    file = epoch_file.EpochFile(PATH, files)
    file.save(ONE)
    file.save(TWO)
    files.replace(PATH, damage)
    file = epoch_file.EpochFile(PATH, files)
    assert file.load() == TWO
    assert f"{PATH} is damaged" in caplog.text
    file.save(ONE)
    assert epoch_file.EpochFile(PATH, files).load() == ONE


def test_the_copy_is_taken_for_a_missing_file(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    file = epoch_file.EpochFile(PATH, files)
    file.save(ONE)
    file.save(TWO)
    files.remove(PATH)
    assert epoch_file.EpochFile(PATH, files).load() == TWO
    assert f"{PATH} is missing" in caplog.text


@pytest.mark.parametrize("copy", [b"torn", None])
def test_without_a_good_copy_the_error_says_what_to_do(
    copy: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    files.replace(PATH, b"torn")
    if copy is not None:
        files.replace(BACKUP, copy)
    with caplog.at_level(logging.WARNING), pytest.raises(StoreError, match="restore one of them"):
        epoch_file.EpochFile(PATH, files).load()


def test_a_file_that_cannot_be_opened_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / epoch_file.FILE_NAME).mkdir()
    with pytest.raises(StoreError, match=epoch_file.FILE_NAME):
        epoch_file.EpochFile(tmp_path / epoch_file.FILE_NAME).load()


FIVE = tuple(EpochEntry(*pair) for pair in [(1, 0), (2, 1075), (3, 2574), (4, 3861), (5, 4921)])

RISING = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 2**40)), min_size=1, max_size=20)


def test_a_genuine_file_is_read_and_written_to_the_byte() -> None:
    assert epoch_file.decode_epoch_file(GENUINE) == FIVE
    assert epoch_file.encode_epoch_file(FIVE) == GENUINE
    assert epoch_file.encode_epoch_file(FIVE[:1]) == b"1\n1725254278\n1-0\n"
    assert epoch_file.encode_epoch_file(FIVE[:2]) == b"2\n206922483\n1-0\n2-1075\n"


@given(RISING)
def test_every_list_is_read_again(steps: list[tuple[int, int]]) -> None:
    entries, epoch, start = [], 0, 0
    for more, further in steps:
        epoch, start = epoch + more, start + further
        entries.append(EpochEntry(epoch, start))
    assert epoch_file.decode_epoch_file(epoch_file.encode_epoch_file(entries)) == tuple(entries)


def test_an_empty_list_is_two_lines() -> None:
    assert epoch_file.encode_epoch_file([]) == b"0\n0\n"
    assert epoch_file.decode_epoch_file(b"0\n0\n") == ()


def test_a_checksum_of_zero_is_not_checked() -> None:
    assert epoch_file.decode_epoch_file(b"1\n0\n7-42\n") == (EpochEntry(7, 42),)


@given(st.integers(0, len(GENUINE) - 1))
def test_a_file_cut_anywhere_is_damaged(length: int) -> None:
    with pytest.raises(FieldError):
        epoch_file.decode_epoch_file(GENUINE[:length])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "not a number"),
        (b"x\n0\n1-0\n", "not a number"),
        (b"1\n-5\n1-0\n", "not a number"),
        (b"1\n0\n", "cut"),
        (b"1\n0", "cut"),
        (b"1\n17\n1-0\n", "checksum is 1725254278, not 17"),
        (b"2\n0\n1-0\n", "1 entries, not 2"),
        (b"1\n0\n1:0\n", "not `epoch-start`"),
        (b"1\n0\n1--5\n", "not `epoch-start`"),
        (b"1\n0\n\xff\n", "not `epoch-start`"),
        (b"2\n0\n2-0\n2-9\n", "2 does not follow 2"),
        (b"2\n0\n1-9\n2-9\n", "2 does not follow 1"),
    ],
)
def test_damage_is_named(content: bytes, error: str) -> None:
    with pytest.raises(FieldError, match=error):
        epoch_file.decode_epoch_file(content)
