"""Both journals are of one interface; records of a directory are whole or not there."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.lake.conftest import location_of

from roquet.lake.files.disk import Disk
from roquet.lake.journal.journal import DirectoryJournal, Journal
from roquet.lake.journal.object_journal import ObjectJournal
from roquet.model.errors import StoreError

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server


@pytest.fixture(params=["directory", "object store"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, s3: "S3Server") -> Journal:
    if request.param == "directory":
        return DirectoryJournal(tmp_path / "made" / "notes", "note")
    return ObjectJournal(location_of("s3://lake/notes"))


def test_records_are_added_replaced_and_removed(journal: Journal) -> None:
    journal.read()
    assert journal.names() == []
    journal.change({"b": b"1", "a": b"2"})
    journal.change({"b": b"3"}, ["a", "never there"])
    journal.read()
    assert journal.names() == ["b"]
    assert journal.content("b") == b"3"
    assert journal.address("b").endswith("/notes/b")


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
