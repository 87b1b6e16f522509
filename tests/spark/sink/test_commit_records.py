"""Commit records are written completely or not at all, and decide a batch once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.sink.conftest import HALF, commit_record, nobody

from roquet.lake.open_table import table_location
from roquet.model.errors import RecordError, StoreError, UsageError
from roquet.model.queue import MessageQueue
from roquet.spark.sink import commit_records
from roquet.spark.sink.commit_records import (
    SCHEMA,
    CommitRecords,
    concat,
    from_bytes,
    refs_of,
    row_codes,
    to_bytes,
)
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.spark.sink.locked_journals import LeasedJournal, LockedDirectory
from roquet.spark.sink.send_requests import SendRequest
from roquet.wire.calls.send import SendReply
from roquet.wire.records.message_id import offset_message_id


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path / "made" / "here"))
    assert (here.open(), here.batches()) == ([], {})
    here.write(commit_record())
    (saved,) = here.open()
    assert (saved.query, saved.batch, saved.group, saved.namesrv, saved.ends) == (
        "q", 3, "group", ("a:1", "b:2"), {"orders": {"broker-a": {"0": 7}}},
    )  # fmt: skip
    assert saved.halves.to_pydict() == HALF
    assert saved.prefix == "q/3/"
    assert here.is_recorded("q", 3)
    assert not here.is_recorded("q", 4)


@pytest.fixture(params=["directory", "object store"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], CommitRecords]:
    if request.param == "directory":
        return lambda: CommitRecords(LockedDirectory(tmp_path))
    request.getfixturevalue("s3")
    location: Any = table_location("s3://lake/commits")
    return lambda: CommitRecords(LeasedJournal(location))


def test_a_batch_is_decided_once_and_finished(records: Callable[[], CommitRecords]) -> None:
    here = records()
    assert (here.batches(), here.is_any_open) == ({}, False)
    with here.locked(0, nobody):
        here.write(commit_record())
        with pytest.raises(UsageError, match="committed already"):
            here.write(commit_record())
        (saved,) = here.open()
        assert (saved.query, saved.batch, saved.namesrv) == ("q", 3, ("a:1", "b:2"))
        assert saved.halves.to_pydict() == HALF
        assert records().is_any_open
        here.done(commit_record())
        assert here.open() == []
    other = records()
    assert other.batches() == {"q": {3}}
    assert not other.is_any_open
    assert other.is_recorded("q", 3)
    assert not other.is_recorded("q", 4)
    with other.locked(0, nobody), pytest.raises(UsageError, match="committed already"):
        other.write(commit_record())


def test_batches_are_found_by_query_whatever_its_name(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path))
    for query, batch in (("q", 3), ("q", 4), ("späte Post.1.open", 0)):
        here.write(commit_record(batch, query))
    here.done(commit_record(3))
    assert here.batches() == {"q": {3, 4}, "späte Post.1.open": {0}}
    assert [(one.query, one.batch) for one in here.open()] == [("q", 4), ("späte Post.1.open", 0)]


def test_old_records_are_pruned_and_open_ones_never(
    records: Callable[[], CommitRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_records, "DONE_RECORDS_MAX", 2)
    here = records()
    with here.locked(0, nobody):
        here.write(commit_record(0))
        for batch in range(1, 6):
            here.write(commit_record(batch))
            here.done(commit_record(batch))
        here.write(commit_record(0, "späte Post.1.open"))
        here.done(commit_record(0, "späte Post.1.open"), forget=True)
    assert here.batches() == {"q": {0, 4, 5}}


def test_a_forgotten_record_leaves_no_file(tmp_path: Path) -> None:
    here = CommitRecords(LockedDirectory(tmp_path))
    here.write(commit_record())
    here.done(commit_record(), forget=True)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_died_half_way_has_decided_nothing(tmp_path: Path) -> None:
    for draft in (".q.000000000003.open.77", "q.000000000003.open.0a1b2c3d"):
        (tmp_path / draft).write_bytes(b"half a rec")
    here = CommitRecords(LockedDirectory(tmp_path))
    assert here.open() == []
    with here.locked(0, nobody):
        here.write(commit_record())
    assert len(here.open()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "q.000000000003.open"]


def test_a_kill_between_the_two_marks_counts_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_records, "DONE_RECORDS_MAX", 2)
    here = CommitRecords(LockedDirectory(tmp_path))
    here.write(commit_record())
    (tmp_path / "q.000000000003.done").write_bytes(b"{}")
    assert here.is_any_open
    assert here.open() == []
    for batch in range(4, 8):
        with here.locked(0, nobody):
            here.write(commit_record(batch))
            here.done(commit_record(batch))
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
    here.write(commit_record())
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
        CommitRecords(LockedDirectory(tmp_path / "file" / "below")).write(commit_record())


def half_message_ref(row: int, *, ordered: bool = False) -> DeliveredRequest:
    queue = MessageQueue("orders", "broker-a", 3) if ordered else None
    request = SendRequest("orders", row, 1, b"x", queue, "")
    place = offset_message_id(b"\x7f\0\0\1\0\0\x2a\x9f", 1_000 + row)
    reply = SendReply(msg_id=place, queue_id=3, queue_offset=50 + row, transaction_id=f"U{row}")
    return DeliveredRequest(request, "broker-a", reply)


def test_references_are_kept_in_the_order_of_the_rows() -> None:
    table = refs_of([half_message_ref(2), half_message_ref(0, ordered=True)], 7)
    assert table.to_pylist() == [
        {"partition": 7, "row": 0, "topic": "orders", "broker": "broker-a", "queue_id": 3,
         "half_offset": 50, "position": 1_000, "unique_key": "U0", "ordered": True},
        {"partition": 7, "row": 2, "topic": "orders", "broker": "broker-a", "queue_id": 3,
         "half_offset": 52, "position": 1_002, "unique_key": "U2", "ordered": False},
    ]  # fmt: skip


def test_a_table_survives_its_bytes() -> None:
    table = refs_of([half_message_ref(row) for row in range(5_000)], 1)
    data = to_bytes(table)
    assert from_bytes(data).equals(table)
    assert len(data) < 20 * 5_000
    with pytest.raises(RecordError, match="no table of half messages"):
        from_bytes(b"nonsense")


def test_partitions_are_put_together() -> None:
    assert concat([]).schema == SCHEMA
    both = concat(
        [refs_of([half_message_ref(0)], 0), refs_of([half_message_ref(0), half_message_ref(1)], 1)]
    )
    assert both["partition"].to_pylist() == [0, 1, 1]


def test_each_row_of_a_batch_has_a_number_of_its_own() -> None:
    partitions, rows = [0, 0, 1, 1, 2], [0, 1, 0, 2**39, 5]
    codes = row_codes(pa.array(partitions, pa.int32()), pa.array(rows))
    assert len(set(codes.tolist())) == 5
