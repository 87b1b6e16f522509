"""Commit records are written completely or not at all, and decide a batch once."""

from pathlib import Path

import pytest

from roquet.model.errors import RecordError, StoreError, UsageError
from roquet.spark.sink import commit_records
from roquet.spark.sink.commit_records import CommitRecord, CommitRecords
from roquet.spark.sink.half_message_refs import SCHEMA
from roquet.spark.sink.locked_journals import LockedDirectory

HALF = {
    "partition": [0], "row": [5], "topic": ["orders"], "broker": ["broker-a"], "queue_id": [2],
    "half_offset": [9], "position": [400], "unique_key": ["U"], "ordered": [False],
}  # fmt: skip


def record(batch: int = 3, query: str = "q") -> CommitRecord:
    table = SCHEMA.empty_table().from_pydict(HALF, SCHEMA)
    ends = {"orders": {"broker-a": {"0": 7}}}
    return CommitRecord(query, batch, "group", ("a:1", "b:2"), ends, table)


def nobody(_ms: int) -> None:
    raise AssertionError("nobody else has the lock")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path / "made" / "here"))
    assert (here.open(), here.batches()) == ([], {})
    here.write(record())
    (saved,) = here.open()
    assert (saved.query, saved.batch, saved.group, saved.namesrv, saved.ends) == (
        "q", 3, "group", ("a:1", "b:2"), {"orders": {"broker-a": {"0": 7}}},
    )  # fmt: skip
    assert saved.halves.to_pydict() == HALF
    assert saved.prefix == "q/3/"
    assert here.is_recorded("q", 3)
    assert not here.is_recorded("q", 4)


def test_a_batch_is_decided_once(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path))
    here.write(record())
    with pytest.raises(UsageError, match="committed already"):
        here.write(record())
    here.done(record())
    assert here.open() == []
    assert here.is_recorded("q", 3)
    with pytest.raises(UsageError, match="committed already"):
        here.write(record())


def test_batches_are_found_by_query_whatever_its_name(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path))
    for query, batch in (("q", 3), ("q", 4), ("späte Post.1.open", 0)):
        here.write(record(batch, query))
    here.done(record(3))
    assert here.batches() == {"q": {3, 4}, "späte Post.1.open": {0}}
    assert [(one.query, one.batch) for one in here.open()] == [("q", 4), ("späte Post.1.open", 0)]


def test_old_records_are_pruned_and_open_ones_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_records, "DONE_RECORDS_MAX", 2)
    here = CommitRecords(LockedDirectory(tmp_path))
    here.write(record(0))
    for batch in range(1, 6):
        here.write(record(batch))
        here.done(record(batch))
    assert here.batches() == {"q": {0, 4, 5}}


def test_a_forgotten_record_leaves_no_file(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path))
    here.write(record())
    here.done(record(), forget=True)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_died_half_way_has_decided_nothing(tmp_path: Path) -> None:
    for draft in (".q.000000000003.open.77", "q.000000000003.open.0a1b2c3d"):
        (tmp_path / draft).write_bytes(b"half a rec")
    here = CommitRecords(LockedDirectory(tmp_path))
    assert here.open() == []
    with here.locked(0, nobody):
        here.write(record())
    assert len(here.open()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "q.000000000003.open"]


def test_a_kill_between_the_two_marks_counts_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_records, "DONE_RECORDS_MAX", 2)
    here = CommitRecords(LockedDirectory(tmp_path))
    here.write(record())
    (tmp_path / "q.000000000003.done").write_bytes(b"{}")
    assert here.is_any_open
    assert here.open() == []
    for batch in range(4, 8):
        with here.locked(0, nobody):
            here.write(record(batch))
            here.done(record(batch))
    assert here.open() == []
    assert not here.is_any_open
    assert here.batches() == {"q": {6, 7}}


@pytest.mark.parametrize("change", ["cut", "version"])
def test_a_damaged_record_is_an_error(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = CommitRecords(LockedDirectory(tmp_path))
    if change == "version":
        monkeypatch.setattr(commit_records, "VERSION", 99)
    here.write(record())
    monkeypatch.undo()
    path = tmp_path / "q.000000000003.open"
    if change == "cut":
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(
        RecordError, match=r"q\.000000000003\.open cannot be read .*partly committed"
    ):
        here.open()


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be in"):
        CommitRecords(LockedDirectory(tmp_path / "file" / "below")).write(record())
