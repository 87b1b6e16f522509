"""Records are files of a directory, whole or not there."""

from pathlib import Path

import pytest

from roquet.lake.files.disk import Disk
from roquet.lake.journal.directory_journal import DirectoryJournal
from roquet.model.errors import StoreError


def test_records_are_added_replaced_and_removed(tmp_path: Path) -> None:
    journal = DirectoryJournal(tmp_path / "made" / "notes", "note")
    assert journal.names() == []
    journal.change({"a": b"1", "b": b"2"})
    journal.change({"a": b"3"}, ["b", "never there"])
    assert journal.names() == ["a"]
    assert journal.content("a") == b"3"
    assert journal.address("a") == str(tmp_path / "made" / "notes" / "a")


def test_what_is_added_is_there_before_the_rest_goes(tmp_path: Path) -> None:
    class Dying(Disk):
        def remove(self, path: Path) -> None:
            raise KeyboardInterrupt

    DirectoryJournal(tmp_path, "note").change({"a": b"1"})
    with pytest.raises(KeyboardInterrupt):
        DirectoryJournal(tmp_path, "note", Dying()).change({"b": b"2"}, ["a"])
    assert DirectoryJournal(tmp_path, "note").names() == ["a", "b"]


def test_a_record_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes" / "a").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"^a note cannot be written to .*notes/a: "):
        DirectoryJournal(tmp_path / "notes", "note").change({"a": b""})
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"^the notes cannot be in .*file: "):
        DirectoryJournal(tmp_path / "file", "note").change({"a": b""})
