"""Both journals are of one interface."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.lake.conftest import location_of

from roquet.lake.journal.directory_journal import DirectoryJournal
from roquet.lake.journal.journal import Journal
from roquet.lake.journal.object_journal import ObjectJournal

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server


@pytest.fixture(params=["directory", "object store"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, s3: "S3Server") -> Journal:
    if request.param == "directory":
        return DirectoryJournal(tmp_path / "notes", "note")
    return ObjectJournal(location_of("s3://lake/notes"))


def test_a_journal_has_what_was_added_last(journal: Journal) -> None:
    journal.read()
    assert journal.names() == []
    journal.change({"b": b"1", "a": b"2"})
    journal.change({"b": b"3"}, ["a"])
    journal.read()
    assert journal.names() == ["b"]
    assert journal.content("b") == b"3"
    assert journal.address("b").endswith("/notes/b")
