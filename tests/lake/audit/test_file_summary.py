"""Summaries of files: offsets, hours and row numbers as a few counts."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.lake.audit import file_summary
from roquet.lake.audit.file_summary import (
    HOUR_US,
    FileSummary,
    SequenceSummary,
    SummaryTasks,
    add_hours,
    merge_summaries,
    transform,
)
from roquet.lake.intervals import OffsetCounts
from roquet.lake.table import TableDamaged
from roquet.model.errors import ConfigError

TIME = pa.timestamp("us", "UTC")
MAP = pa.map_(pa.string(), pa.string())


def rows(*places: tuple[str, int, int], hours: list[int | None] | None = None) -> pa.RecordBatch:
    stored = hours or [0] * len(places)
    return pa.RecordBatch.from_pydict(
        {
            "broker": pa.array([place[0] for place in places], pa.string()),
            "queue_id": pa.array([place[1] for place in places], pa.int32()),
            "queue_offset": pa.array([place[2] for place in places], pa.int64()),
            "stored_at": pa.array([None if h is None else h * HOUR_US for h in stored], TIME),
        }
    )


def rows_with_keys(*keys: str | None) -> pa.RecordBatch:
    """Rows with a key of the sink, or without."""
    table = rows(*(("a", 0, n) for n in range(len(keys))))
    maps = [[] if key is None else [("ROQUET_ROW", key), ("x", "1")] for key in keys]
    return table.append_column("properties", pa.array(maps, MAP))


def test_each_queue_has_its_runs_and_its_hours() -> None:
    summary = transform(
        rows(("b", 3, 9), ("a", 0, 1), ("b", 3, 8), ("b", 0, 8), hours=[2, 0, 1, 1])
    )
    assert summary.rows == 4
    assert sorted(summary.queues, key=lambda one: (one.name, one.queue_id)) == [
        SequenceSummary(name="a", queue_id=0, counts=OffsetCounts([1], [2], [1]), hours={0: 1}),
        SequenceSummary(name="b", queue_id=0, counts=OffsetCounts([8], [9], [1]), hours={1: 1}),
        SequenceSummary(
            name="b", queue_id=3, counts=OffsetCounts([8], [10], [1]), hours={1: 1, 2: 1}
        ),
    ]


def test_a_row_without_a_time_is_in_no_hour() -> None:
    [queue] = transform(rows(("a", 0, 1), hours=[None])).queues
    assert queue.hours == {-1: 1}


def test_without_rows_the_summary_is_empty() -> None:
    assert transform(rows()) == FileSummary()
    assert transform(rows_with_keys(), keys=True) == FileSummary()


def test_the_hours_of_producers_are_counted_where_they_are_known() -> None:
    table = rows(("a", 0, 1)).append_column("born_at", pa.array([5 * HOUR_US], TIME))
    assert transform(table).queues[0].born == {5: 1}


def test_keys_of_rows_are_numbers_of_a_writer() -> None:
    summary = transform(rows_with_keys("q/1/0/0", "q/1/0/1", None, "q/1/1/7", "no key"), keys=True)
    assert summary.writers == (
        SequenceSummary(name="q/1/0", counts=OffsetCounts([0], [2], [1])),
        SequenceSummary(name="q/1/1", counts=OffsetCounts([7], [8], [1])),
    )
    assert transform(rows_with_keys("q/1/0/0")).writers == (), "nobody asked"


def test_counts_of_two_files_are_added() -> None:
    parts = [transform(rows(("a", 0, 1), ("a", 0, 2))), transform(rows(("a", 0, 2), ("b", 1, 5)))]
    both = merge_summaries(parts)
    assert both.rows == 4
    assert [one.counts for one in both.queues] == [
        OffsetCounts([1, 2], [2, 3], [1, 2]),
        OffsetCounts([5], [6], [1]),
    ]
    assert both.queues[0].hours == {0: 3}
    assert add_hours([{1: 2}, {0: 1, 1: 3}]) == {0: 1, 1: 5}


def write_file(path: Path, rows: pa.RecordBatch) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([rows]), path)
    return str(path)


def run_tasks(task_set: SummaryTasks) -> list[FileSummary]:
    return [
        msgspec.json.decode(task_set.run(n).payload, type=FileSummary) for n in range(len(task_set))
    ]


def test_a_task_answers_for_its_files(tmp_path: Path) -> None:
    paths = [
        write_file(tmp_path / f"day=2026-01-0{n}" / "f.parquet", rows(("a", 0, n), ("a", 1, n)))
        for n in (1, 2, 3)
    ]
    summary = run_tasks(SummaryTasks(groups=[paths[:2], paths[2:]], topic="orders"))
    assert [one.rows for one in summary] == [4, 2]
    assert summary[0].queues[0].counts == OffsetCounts([1], [3], [1])


def test_rows_of_other_topics_do_not_count(tmp_path: Path) -> None:
    table = rows(("a", 0, 1), ("a", 0, 2)).append_column("topic", pa.array(["orders", "paid"]))
    [summary] = run_tasks(
        SummaryTasks(groups=[[write_file(tmp_path / "f.parquet", table)]], topic="paid")
    )
    assert summary.queues[0].counts == OffsetCounts([2], [3], [1])


def test_unreadable_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(TableDamaged, match=r"f\.parquet cannot be read"):
        run_tasks(SummaryTasks(groups=[[str(tmp_path / "f.parquet")]], topic="a"))
    with pytest.raises(TableDamaged, match="is gone: if files were merged"):
        run_tasks(SummaryTasks(groups=[[str(tmp_path / "g.parquet")]], topic="a"))


def test_rows_without_a_queue_are_an_error(tmp_path: Path) -> None:
    table = rows(("a", 0, 1), ("a", 0, 2))
    place = table.schema.get_field_index("queue_id")
    table = table.set_column(place, "queue_id", pa.array([0, None], pa.int32()))
    with pytest.raises(TableDamaged, match="1 rows without queue_id"):
        run_tasks(SummaryTasks(groups=[[write_file(tmp_path / "f.parquet", table)]], topic="a"))


@pytest.mark.parametrize(("drop", "keys", "says"), [
    ("queue_offset", False, "no column 'queue_offset'"),
    ("properties", True, "no column 'properties', which holds the keys"),
])  # fmt: skip
def test_files_of_other_data_are_an_error(tmp_path: Path, drop: str, keys: bool, says: str) -> None:
    table = rows_with_keys("q/1/0/0").drop_columns(drop)
    task_set = SummaryTasks(
        groups=[[write_file(tmp_path / "f.parquet", table)]], topic="a", keys=keys
    )
    with pytest.raises(ConfigError, match=says):
        task_set.run(0)


def test_a_long_file_is_summarized_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_summary, "BATCH_ROWS", 2)
    table = rows(*(("a", n % 2, n // 2) for n in range(7)), ("b", 0, 1))
    table = table.append_column("topic", pa.array(["orders"] * 7 + [None]))
    path = write_file(tmp_path / "f.parquet", table)
    parts = file_summary.read_audit_columns(path, "orders", keys=False)
    assert [len(part) for part in parts] == [2, 2, 2, 1]
    [summary] = run_tasks(SummaryTasks(groups=[[path]], topic="orders"))
    assert [(one.name, one.queue_id, one.counts) for one in summary.queues] == [
        ("a", 0, OffsetCounts([0], [4], [1])),
        ("a", 1, OffsetCounts([0], [3], [1])),
    ]
