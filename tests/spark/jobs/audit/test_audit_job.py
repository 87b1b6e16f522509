"""What is missing or doubled in a table is named, whoever did it, by queue and offset."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from roquet.model.errors import ConfigError, UsageError
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.audit.audit_job import Params, group_files, topic_options
from roquet.spark.jobs.audit.audit_report import AuditReport
from roquet.spark.jobs.audit.hourly_counts import hour_text
from roquet.spark.jobs.job_runner import JobFailed

KINDS = ("parquet", "delta", "iceberg")


class Lake:
    """A topic, its archive, and what is done to the archive by hand."""

    def __init__(self, topic: Any, eager: Any, root: Path) -> None:
        self.topic, self.eager, self.root = topic, eager, root
        self.options = {"namesrv": topic.namesrv, "timeout": "2s"}

    def archive(self, kind: str = "parquet", **options: str) -> None:
        params = archive_job.Params(
            topic="orders", target=str(self.root), kind=kind, options={**self.options, **options}
        )
        archive_job.run(params, self.eager)

    def audit(self, **params: Any) -> AuditReport:
        given = {"topic": "orders", "target": str(self.root), "options": self.options, **params}
        return audit_job.run(Params(**given))

    def change(self, change: Any) -> None:
        """Write each file anew, as somebody with an editor would."""
        for path in sorted(self.root.rglob("*.parquet")):
            pq.write_table(change(pq.ParquetFile(path).read()), path)

    def said(self, **params: Any) -> list[tuple[str, str, int, str]]:
        found = self.audit(**params).findings
        return [(one.what, one.broker, one.queue_id, one.offsets) for one in found]


@pytest.fixture
def lake(topic: Any, eager: Any, tmp_path: Path) -> Lake:
    return Lake(topic, eager, tmp_path / "lake")


def at(rows: pa.Table, broker: str, queue_id: int, *offsets: int) -> Any:
    """Which rows are these messages."""
    is_queue = pc.and_(pc.equal(rows["broker"], broker), pc.equal(rows["queue_id"], queue_id))
    return pc.and_(is_queue, pc.is_in(rows["queue_offset"], pa.array(offsets, pa.int64())))


def removed_and_doubled(rows: pa.Table) -> pa.Table:
    """Three rows removed, and two doubled."""
    twice = rows.filter(pc.or_(at(rows, "broker-a", 1, 20), at(rows, "broker-b", 0, 0)))
    gone = pc.or_(at(rows, "broker-a", 0, 7, 29), at(rows, "broker-b", 1, 0))
    return pa.concat_tables([rows.filter(pc.invert(gone)), twice])


@pytest.mark.parametrize("kind", KINDS)
def test_three_rows_removed_and_two_doubled_by_hand_are_named(lake: Lake, kind: str) -> None:
    lake.topic.send(30)
    lake.archive(kind)
    assert lake.audit().is_clean
    lake.change(removed_and_doubled)
    assert lake.said() == [
        ("missing", "broker-a", 0, "7"),
        ("missing", "broker-a", 0, "29"),
        ("doubled", "broker-a", 1, "20"),
        ("doubled", "broker-b", 0, "0"),
        ("missing", "broker-b", 1, "0"),
    ]
    report = lake.audit()
    assert (report.rows, report.in_topic, report.waiting) == (119, 120, 0)
    assert (report.count("missing"), report.count("doubled")) == (3, 2)
    assert report.begin_known


def test_a_file_that_is_gone_is_its_ranges(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive(maxPartitions="1")
    lake.topic.send(5)
    lake.archive(maxPartitions="1")
    newest = max(lake.root.glob("day=*/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    assert lake.said() == [("missing", b, q, "10..14") for b, q in lake.topic.queues]


def test_a_file_that_is_there_twice_is_doubled(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive(maxPartitions="1")
    [path] = lake.root.glob("day=*/*.parquet")
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    assert lake.said() == [("doubled", b, q, "0..9") for b, q in lake.topic.queues]


def test_an_archive_that_began_late_misses_nothing(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive(startingOffsets="latest")
    lake.topic.send(4)
    lake.archive()
    report = lake.audit()
    assert (report.is_clean, report.rows, report.in_topic) == (True, 16, 56)


def test_what_comes_meanwhile_waits(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive()
    lake.topic.send(3)
    report = lake.audit()
    assert (report.is_clean, report.waiting) == (True, 12)


def test_hours_are_those_of_the_broker(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive()
    report = lake.audit()
    assert sum(one.table for one in report.hours) == 40
    assert sum(one.topic or 0 for one in report.hours) == 40


def test_a_producers_count_is_held_against_the_table(lake: Lake, tmp_path: Path) -> None:
    lake.topic.send(10)
    lake.archive()
    born = 1_700_000_000_000
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps([{"hour": born, "topic": "orders", "count": 40}]))
    assert lake.audit(producer=str(counts)).is_clean
    counts.write_text(json.dumps([{"hour": born, "count": 43}, {"hour": born // 2, "count": 2}]))
    found = lake.audit(producer=str(counts)).producer
    assert [(hour_text(one.first), one.more) for one in found] == [
        ("1996-12-07 23:00", -2),
        ("2023-11-14 22:00", -3),
    ]


def test_files_of_something_else_are_audited_too(lake: Lake, tmp_path: Path) -> None:
    lake.topic.send(10)
    lake.archive()
    other = tmp_path / "other"
    other.mkdir()
    for n, path in enumerate(lake.root.glob("day=*/*.parquet")):
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.filter(pc.invert(at(rows, "broker-a", 0, 3))), other / f"{n}.parquet")
    report = lake.audit(target=str(other))
    assert [(one.what, one.offsets) for one in report.findings] == [("missing", "3")]
    assert not report.begin_known
    assert report.kind == "files"


def test_files_are_looked_at_on_a_spark_that_is_given(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive()
    spark = lake.eager()
    params = Params(topic="orders", target=str(lake.root), options=lake.options)
    assert audit_job.run(params, lambda: spark) == lake.audit()
    assert spark.jobs == 1


def test_progress_is_told(lake: Lake) -> None:
    lake.topic.send(10)
    lake.archive()
    reported = list[audit_job.AuditProgress]()
    params = Params(topic="orders", target=str(lake.root), options=lake.options)
    audit_job.run(params, on_progress=reported.append)
    assert {one.what for one in reported} == {"files", "queues"}
    assert any(one.done == one.total == 1 for one in reported if one.what == "files")


def test_a_topic_that_there_is_not_is_said_first(lake: Lake) -> None:
    lake.topic.send(1)
    lake.archive()
    with pytest.raises(ConfigError, match="of topic 'orders', not of 'odrers'"):
        lake.audit(topic="odrers")
    (lake.root / "loose").mkdir()
    rows = pq.ParquetFile(next(lake.root.rglob("*.parquet"))).read()
    pq.write_table(rows, lake.root / "loose" / "f.parquet")
    with pytest.raises(UsageError, match="topic 'odrers' is unknown"):
        lake.audit(topic="odrers", target=str(lake.root / "loose"))


@pytest.mark.parametrize(
    ("topic", "options", "says"),
    [
        ("", {}, "of exactly one topic"),
        ("a,b", {}, "of exactly one topic"),
        ("a", {"tags": "x"}, "option 'tags' is not allowed"),
    ],
)
def test_what_cannot_be_is_said(topic: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        topic_options(Params(topic=topic, target="lake", options={"namesrv": "a:1", **options}))


def test_keys_of_rows_are_looked_at_when_asked_for(lake: Lake) -> None:
    lake.topic.send(5)
    lake.archive()
    maps = pa.map_(pa.string(), pa.string())

    def keyed(rows: pa.Table) -> pa.Table:
        keys = [[("ROQUET_ROW", f"q/0/0/{n}")] for n in range(rows.num_rows)]
        place = rows.column_names.index("properties")
        return rows.set_column(place, "properties", pa.array(keys, maps))

    lake.change(keyed)
    files = len(list(lake.root.rglob("*.parquet")))
    report = lake.audit(producer="rows")
    assert len(report.row_gaps) == (0 if files == 1 else 1), "each file begins with 0 again"
    assert lake.audit().row_gaps == ()


def test_rows_that_were_sent_twice_are_named_by_queue_and_offset(lake: Lake) -> None:
    lake.topic.send(5)
    lake.archive(maxPartitions="1")
    maps = pa.map_(pa.string(), pa.string())

    def keyed(rows: pa.Table) -> pa.Table:
        numbers = [3 if n == 7 else n for n in range(rows.num_rows)]
        keys = [[("ROQUET_ROW", f"q/0/0/{n}")] for n in numbers]
        place = rows.column_names.index("properties")
        return rows.set_column(place, "properties", pa.array(keys, maps))

    lake.change(keyed)
    [path] = lake.root.glob("day=*/*.parquet")
    wanted = pq.ParquetFile(path).read(["broker", "queue_id", "queue_offset"]).to_pylist()
    twice, gone = lake.audit(producer="rows").row_gaps
    assert (twice.what, twice.rows, gone.what, gone.rows) == ("doubled", "3", "missing", "7")
    assert gone.places == ()
    assert [(one.broker, one.queue_id, one.offset) for one in twice.places] == sorted(
        tuple(wanted[n].values()) for n in (3, 7)
    )


def test_what_retention_took_is_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic.send(10)
    lake.archive()
    lake.topic.send(8)
    lake.change(lambda rows: rows.filter(pc.invert(at(rows, "broker-a", 0, 2, 8))))
    real = ClusterClient.bounds

    def bounds(cluster: ClusterClient) -> OffsetBounds:
        found = real(cluster)
        firsts = {("broker-a", 0): 5, ("broker-b", 1): 13}
        earliest = {q: firsts.get((q[1], q[2]), at) for q, at in found.earliest.items()}
        return OffsetBounds(earliest, found.latest)

    monkeypatch.setattr(ClusterClient, "bounds", bounds)
    assert lake.said() == [
        ("lost", "broker-a", 0, "2"),
        ("missing", "broker-a", 0, "8"),
        ("lost", "broker-b", 1, "10..12"),
    ]
    assert lake.audit().waiting == 8 * 3 + 5


def test_small_files_share_a_task() -> None:
    size = audit_job.GROUP_BYTES // 2
    paths = ["a", "b", "c"]
    assert group_files(paths, lambda path: size) == [["a", "b"], ["c"]]
    assert group_files(paths, lambda path: 10) == [paths]
    assert group_files([], lambda path: 1) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_a_topic_that_was_deleted_is_not_compared_with_the_new_one(
    lake: Lake, kind: str
) -> None:
    lake.topic.send(2)
    lake.archive(kind)
    lake.topic.recreate()
    lake.topic.send(3)
    with pytest.raises(JobFailed, match=r"not of the same messages: .*deleted and made anew"):
        lake.audit()
