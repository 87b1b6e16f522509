"""One driver at a time commits; records in an object store decide a batch once."""

from pathlib import Path

import pytest
from tests.spark.sink.conftest import SinkCluster, commit_record, nobody

from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import LeaseHeld, LeaseTimes
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.open_table import table_location
from roquet.model.errors import RecordError, StoreError
from roquet.spark.sink import locked_journals
from roquet.spark.sink.commit import commit, decided_batches, finish_decided
from roquet.spark.sink.commit_records import CommitRecord, CommitRecords, RecordName
from roquet.spark.sink.locked_journals import LeasedJournal, LockedDirectory

URL = "s3://lake/commits"


def location() -> ObjectLocation:
    where = table_location(URL)
    assert isinstance(where, ObjectLocation)
    return where


@pytest.fixture
def records(s3: object) -> CommitRecords:
    return CommitRecords(LeasedJournal(location()))


def test_one_driver_at_a_time_has_the_lease(records: CommitRecords) -> None:
    other = CommitRecords(LeasedJournal(location()))
    pauses = list[int]()
    with records.locked(0, nobody):
        records.check_lock()
        with (
            pytest.raises(StoreError, match="another process is committing in s3://lake/commits"),
            other.locked(0, pauses.append),
        ):
            pass
    with other.locked(0, nobody):
        other.check_lock()


def test_a_driver_after_a_killed_one_waits_for_its_lease_to_end(
    records: CommitRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = records.locked(0, nobody)
    killed.__enter__()
    other, pauses = CommitRecords(LeasedJournal(location())), list[int]()

    def pause(ms: int) -> None:
        pauses.append(ms)
        monkeypatch.setattr(locked_journals, "LEASE_TIMES", LeaseTimes(25_000, 8_000, -60_000))

    with other.locked(60_000, pause):
        assert len(pauses) == 1
        assert other.batches() == {}
        killed.__exit__(None, None, None)
        other.write(commit_record())
    assert other.batches() == {"q": {3}}


def test_a_lease_that_was_not_renewed_commits_nothing(
    s3: object, sink_cluster: SinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, halves = sink_cluster.send_halves("frozen", URL, [b"a", b"b"])
    with monkeypatch.context() as patch:
        patch.setattr(locked_journals, "LEASE_TIMES", LeaseTimes(0, 1_000_000, 0))
        with pytest.raises(LeaseHeld, match="was not renewed"):
            commit(options, "q", 0, halves)
    assert sink_cluster.bodies("frozen") == []
    commit(options, "q", 0, halves)
    assert sink_cluster.bodies("frozen") == [b"a", b"b"]
    assert decided_batches(options) == {"q": {0}}


def test_a_batch_that_a_killed_driver_decided_is_finished(
    s3: object, sink_cluster: SinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, halves = sink_cluster.send_halves("decided", URL, [b"a", b"b"])
    write = CommitRecords.write

    def dying(self: CommitRecords, record: CommitRecord) -> None:
        write(self, record)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CommitRecords, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            commit(options, "q", 0, halves)
    assert sink_cluster.bodies("decided") == []
    finish_decided(options, quiet_ms=0)
    assert sink_cluster.bodies("decided") == [b"a", b"b"]
    finish_decided(options, quiet_ms=0)
    assert sink_cluster.bodies("decided") == [b"a", b"b"]


def test_a_damaged_record_is_named_by_its_url(records: CommitRecords) -> None:
    journal = ObjectJournal(location())
    journal.read()
    journal.change({str(RecordName("q", 3, "open")): b"no record"})
    with (
        records.locked(0, nobody),
        pytest.raises(
            RecordError,
            match=r"commit record s3://lake/commits/q\.000000000003\.open cannot be read",
        ),
    ):
        records.open()


def test_together_the_times_of_a_lease_are_shorter_than_a_write_waits() -> None:
    from roquet.spark.sink.commit import QUIET_MS
    from roquet.spark.sink.options import TIMEOUT_MS

    times = locked_journals.LEASE_TIMES
    assert times.lease_ms + times.grace_ms + QUIET_MS < TIMEOUT_MS
    assert times.grace_ms > 2 * QUIET_MS
    assert times.renew_ms < times.lease_ms / 2


def test_two_drivers_cannot_commit_at_the_same_time(tmp_path: Path) -> None:
    here, waits = LockedDirectory(tmp_path), list[int]()
    with here.locked(1_000, nobody):
        with (
            pytest.raises(StoreError, match="another process is committing"),
            LockedDirectory(tmp_path).locked(0, waits.append),
        ):
            raise AssertionError
        with pytest.raises(InterruptedError), LockedDirectory(tmp_path).locked(9_000, interrupt):
            raise AssertionError
    with LockedDirectory(tmp_path).locked(0, nobody):
        pass


def interrupt(_ms: int) -> None:
    raise InterruptedError
