"""Missing and duplicate messages of a table are reported by queue and offset."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.conftest import ArchivedTopic, MakeSpark, Topic

from roquet.lake.audit.audit_report import AuditReport
from roquet.lake.audit.findings import HOUR_MS
from roquet.lake.audit.hourly_counts import hour_text
from roquet.lake.maintain import maintenance
from roquet.lake.queue_offsets import QueueKey
from roquet.model.errors import ConfigError, UsageError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.audit.audit_job import (
    Params,
    group_files,
    hour_starts,
    search_hours,
    topic_options,
)
from roquet.spark.jobs.job_runner import JobFailed
from roquet.spark.options import SourceOptions

KINDS = ("delta", "iceberg")


class AuditedArchive:
    """A topic with an archive, whose files tests damage by hand."""

    def __init__(self, topic: Topic, eager: MakeSpark, root: Path) -> None:
        self.topic, self.eager, self.root = topic, eager, root
        self.options = {"namesrv": topic.namesrv, "timeout": "2s"}

    def archive(self, count: int = 0, kind: str = "delta", **options: str) -> None:
        """Send so many messages to each queue, and archive what there is."""
        self.topic.send(count)
        params = archive_job.Params(
            topic="orders", target=str(self.root), kind=kind, options={**self.options, **options}
        )
        archive_job.run(params, self.eager)

    def audit(self, **params: Any) -> AuditReport:
        arguments = {"topic": "orders", "target": str(self.root), "options": self.options, **params}
        return audit_job.run(Params(**arguments))

    def change(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Write each file anew, as somebody with an editor would."""
        for path in sorted(self.root.rglob("*.parquet")):
            pq.write_table(change(pq.ParquetFile(path).read()), path)

    def findings(self, **params: Any) -> list[tuple[str, str, int, str]]:
        report_findings = self.audit(**params).findings
        return [(one.what, one.broker, one.queue_id, one.offsets) for one in report_findings]


@pytest.fixture
def audited(topic: Topic, eager: MakeSpark, tmp_path: Path) -> AuditedArchive:
    return AuditedArchive(topic, eager, tmp_path / "lake")


def at(rows: pa.Table, broker: str, queue_id: int, *offsets: int) -> Any:
    """Which rows are these messages."""
    is_queue = pc.and_(pc.equal(rows["broker"], broker), pc.equal(rows["queue_id"], queue_id))
    return pc.and_(is_queue, pc.is_in(rows["queue_offset"], pa.array(offsets, pa.int64())))


def removed_and_doubled(rows: pa.Table) -> pa.Table:
    twice = rows.filter(pc.or_(at(rows, "broker-a", 1, 20), at(rows, "broker-b", 0, 0)))
    gone = pc.or_(at(rows, "broker-a", 0, 7, 29), at(rows, "broker-b", 1, 0))
    return pa.concat_tables([rows.filter(pc.invert(gone)), twice])


@pytest.mark.parametrize("kind", KINDS)
def test_three_rows_removed_and_two_doubled_by_hand_are_named(
    audited: AuditedArchive, kind: str
) -> None:
    audited.archive(30, kind)
    assert audited.audit().is_clean
    audited.change(removed_and_doubled)
    assert audited.findings() == [
        ("missing", "broker-a", 0, "7"),
        ("missing", "broker-a", 0, "29"),
        ("doubled", "broker-a", 1, "20"),
        ("doubled", "broker-b", 0, "0"),
        ("missing", "broker-b", 1, "0"),
    ]
    report = audited.audit()
    assert (report.rows, report.in_topic, report.waiting) == (119, 120, 0)
    assert (report.count("missing"), report.count("doubled")) == (3, 2)
    assert report.begin_known


def test_a_file_that_is_gone_is_its_ranges(audited: AuditedArchive) -> None:
    audited.archive(10, maxPartitions="1")
    audited.archive(5, maxPartitions="1")
    newest = max(audited.root.glob("day=*/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    log = DeltaTable(str(audited.root))
    size, day = newest.stat().st_size, newest.parent.name.removeprefix("day=")
    gone = RemoveAction(f"day={day}/{newest.name}", True, 0, size, {"day": day})
    log.create_write_transaction([gone], "append", log.schema(), partition_by=["day"])
    assert audited.findings() == [("missing", b, q, "10..14") for b, q in audited.topic.queues]


def test_a_file_that_is_there_twice_is_doubled(audited: AuditedArchive) -> None:
    audited.archive(10, maxPartitions="1")
    [path] = audited.root.glob("day=*/*.parquet")
    copy, day = path.with_name("copy.parquet"), path.parent.name.removeprefix("day=")
    copy.write_bytes(path.read_bytes())
    log, size = DeltaTable(str(audited.root)), path.stat().st_size
    added = AddAction(f"day={day}/copy.parquet", size, {"day": day}, 0, True, '{"numRecords":40}')
    log.create_write_transaction([added], "append", log.schema(), partition_by=["day"])
    assert audited.findings() == [("doubled", b, q, "0..9") for b, q in audited.topic.queues]


def test_an_archive_that_began_late_misses_nothing(audited: AuditedArchive) -> None:
    audited.archive(10, startingOffsets="latest")
    audited.archive(4)
    report = audited.audit()
    assert (report.is_clean, report.rows, report.in_topic) == (True, 16, 56)


def test_messages_sent_during_the_audit_are_waiting(audited: AuditedArchive) -> None:
    audited.archive(10)
    audited.topic.send(3)
    report = audited.audit()
    assert (report.is_clean, report.waiting) == (True, 12)


def test_messages_of_a_queue_that_was_removed_are_waiting_too(audited: AuditedArchive) -> None:
    audited.archive(5)
    audited.topic.send(3)
    audited.topic.resize(1)
    report = audited.audit()
    assert (report.is_clean, report.in_topic, report.waiting) == (True, 32, 12)


def test_hours_are_those_of_the_broker(audited: AuditedArchive) -> None:
    audited.archive(10)
    report = audited.audit()
    assert sum(one.table for one in report.hours) == 40
    assert sum(one.topic or 0 for one in report.hours) == 40


def test_a_producers_count_is_held_against_the_table(
    audited: AuditedArchive, tmp_path: Path
) -> None:
    audited.archive(10)
    born = 1_700_000_000_000
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps([{"hour": born, "topic": "orders", "count": 40}]))
    assert audited.audit(producer=str(counts)).is_clean
    counts.write_text(json.dumps([{"hour": born, "count": 43}, {"hour": born // 2, "count": 2}]))
    differences = audited.audit(producer=str(counts)).producer
    assert [(hour_text(one.first), one.more) for one in differences] == [
        ("1996-12-07 23:00", -2),
        ("2023-11-14 22:00", -3),
    ]


def test_files_of_other_programs_are_audited(audited: AuditedArchive, tmp_path: Path) -> None:
    audited.archive(10)
    other = tmp_path / "other"
    other.mkdir()
    for n, path in enumerate(audited.root.glob("day=*/*.parquet")):
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.filter(pc.invert(at(rows, "broker-a", 0, 3))), other / f"{n}.parquet")
    report = audited.audit(target=str(other))
    assert [(one.what, one.offsets) for one in report.findings] == [("missing", "3")]
    assert not report.begin_known
    assert report.kind == "files"


def test_files_are_read_on_a_provided_spark(audited: AuditedArchive) -> None:
    audited.archive(10)
    spark = audited.eager()
    params = Params(topic="orders", target=str(audited.root), options=audited.options)
    assert audit_job.run(params, lambda: spark) == audited.audit()
    assert spark.jobs == 1


def test_progress_is_reported(audited: AuditedArchive) -> None:
    audited.archive(10)
    reported = list[audit_job.AuditProgress]()
    params = Params(topic="orders", target=str(audited.root), options=audited.options)
    audit_job.run(params, on_progress=reported.append)
    assert {one.what for one in reported} == {"files", "queues"}
    assert any(one.done == one.total == 1 for one in reported if one.what == "files")


def test_a_missing_topic_is_the_first_error(audited: AuditedArchive) -> None:
    audited.archive(1)
    with pytest.raises(ConfigError, match="of topic 'orders', not of 'odrers'"):
        audited.audit(topic="odrers")
    (audited.root / "loose").mkdir()
    rows = pq.ParquetFile(next(audited.root.rglob("*.parquet"))).read()
    pq.write_table(rows, audited.root / "loose" / "f.parquet")
    with pytest.raises(UsageError, match="topic 'odrers' is unknown"):
        audited.audit(topic="odrers", target=str(audited.root / "loose"))


@pytest.mark.parametrize(
    ("topic", "options", "says"),
    [
        ("", {}, "of exactly one topic"),
        ("a,b", {}, "of exactly one topic"),
        ("a", {"tags": "x"}, "option 'tags' is not allowed"),
    ],
)
def test_impossible_parameters_are_an_error(topic: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        topic_options(Params(topic=topic, target="lake", options={"namesrv": "a:1", **options}))


def with_row_keys(rows: pa.Table, numbers: Iterable[int]) -> pa.Table:
    keys = [[("ROQUET_ROW", f"q/0/0/{number}")] for number in numbers]
    place = rows.column_names.index("properties")
    return rows.set_column(place, "properties", pa.array(keys, pa.map_(pa.string(), pa.string())))


def test_row_keys_are_checked_on_request(audited: AuditedArchive) -> None:
    audited.archive(5)
    audited.change(lambda rows: with_row_keys(rows, range(rows.num_rows)))
    files = len(list(audited.root.rglob("*.parquet")))
    report = audited.audit(producer="rows")
    assert len(report.row_gaps) == (0 if files == 1 else 1), "each file begins with 0 again"
    assert audited.audit().row_gaps == ()


def test_rows_that_were_sent_twice_are_named_by_queue_and_offset(audited: AuditedArchive) -> None:
    audited.archive(5, maxPartitions="1")
    audited.change(
        lambda rows: with_row_keys(rows, [3 if n == 7 else n for n in range(rows.num_rows)])
    )
    [path] = audited.root.glob("day=*/*.parquet")
    wanted = pq.ParquetFile(path).read(["broker", "queue_id", "queue_offset"]).to_pylist()
    twice, gone = audited.audit(producer="rows").row_gaps
    assert (twice.what, twice.rows, gone.what, gone.rows) == ("doubled", "3", "missing", "7")
    assert gone.places == ()
    assert [(one.broker, one.queue_id, one.offset) for one in twice.places] == sorted(
        tuple(wanted[n].values()) for n in (3, 7)
    )


def test_messages_deleted_by_retention_are_lost(
    audited: AuditedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited.archive(10)
    audited.topic.send(8)
    audited.change(lambda rows: rows.filter(pc.invert(at(rows, "broker-a", 0, 2, 8))))
    real = ClusterClient.bounds

    def bounds(cluster: ClusterClient, former: Iterable[QueueKey] = ()) -> OffsetBounds:
        state = real(cluster, former)
        firsts = {("broker-a", 0): 5, ("broker-b", 1): 13}
        earliest = {q: firsts.get((q[1], q[2]), at) for q, at in state.earliest.items()}
        return OffsetBounds(earliest, state.latest)

    monkeypatch.setattr(ClusterClient, "bounds", bounds)
    assert audited.findings() == [
        ("lost", "broker-a", 0, "2"),
        ("missing", "broker-a", 0, "8"),
        ("lost", "broker-b", 1, "10..12"),
    ]
    assert audited.audit().waiting == 8 * 3 + 5


def test_small_files_share_a_task() -> None:
    size = audit_job.GROUP_BYTES // 2
    paths = ["a", "b", "c"]
    assert group_files(paths, lambda path: size) == [["a", "b"], ["c"]]
    assert group_files(paths, lambda path: 10) == [paths]
    assert group_files([], lambda path: 1) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_a_topic_that_was_deleted_is_not_compared_with_the_new_one(
    audited: AuditedArchive, kind: str
) -> None:
    audited.archive(2, kind)
    audited.topic.recreate()
    audited.topic.send(3)
    with pytest.raises(JobFailed, match=r"not of the same messages: .*deleted and made anew"):
        audited.audit()


def test_an_audit_misses_nothing_that_was_retired(archived_topic: ArchivedTopic) -> None:
    archived_topic.topic.send(5)
    archived_topic.archive()
    root = str(archived_topic.root)
    tomorrow_ms = SYSTEM_CLOCK.now_ms() + 2 * maintenance.DAY_MS
    archived_topic.archive()
    done = maintenance.run(
        maintenance.Params(target=root, keep_days=1, is_preview=False),
        maintenance.run_here,
        tomorrow_ms,
    )
    assert done.retired_rows == 20
    archived_topic.topic.send(5)
    archived_topic.archive()
    params = Params(topic="orders", target=root, options={"namesrv": archived_topic.topic.namesrv})
    assert audit_job.run(params).findings == ()


@given(st.dictionaries(st.integers(0, 200), st.integers(1, 9), min_size=1))
def test_the_hours_with_messages_are_found(counts: dict[int, int]) -> None:
    probed = list[int]()

    def at(hour: int) -> int:
        probed.append(hour)
        return sum(count for known, count in counts.items() if known < hour)

    hours = list(search_hours(at, (min(counts), 0), (201, sum(counts.values()))))
    assert hours == [(hour, at(hour)) for hour in sorted(counts)]


def test_a_quiet_time_costs_few_questions() -> None:
    probed = list[int]()

    def at(hour: int) -> int:
        probed.append(hour)
        return 5 if hour <= 70_000 else 10

    assert list(search_hours(at, (0, 0), (100_000, 10))) == [(0, 0), (70_000, 5)]
    assert len(probed) < 60


def test_a_topic_is_counted_by_hour(topic: Topic) -> None:
    topic.send(5)
    cluster = ClusterClient(SourceOptions(namesrv=(topic.namesrv,), topics=(topic.name,)))
    queue = (topic.name, "broker-a", 0)
    [(hour, offset)] = hour_starts(cluster, queue, (0, 5))[:1]
    assert offset == 0
    assert abs(hour - cluster.now_ms() // HOUR_MS) <= 1
    assert hour_starts(cluster, queue, (5, 5)) == ()
