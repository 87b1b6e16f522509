"""Duplicate rows of the sink are located in the topic."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.lake.audit import duplicate_rows as module
from roquet.lake.audit.duplicate_rows import RowSearchTasks, SinkRowLocation, locate_rows
from roquet.lake.intervals import NumberRange

MAP = pa.map_(pa.string(), pa.string())


def rows(*keys: str | None) -> pa.RecordBatch:
    """Messages from offset 10 on, with a key of the sink or without."""
    count = len(keys)
    maps = [None if key is None else [("ROQUET_ROW", key)] for key in keys]
    return pa.RecordBatch.from_pydict(
        {
            "broker": pa.array(["a"] * count),
            "queue_id": pa.array([3] * count, pa.int32()),
            "queue_offset": pa.array(range(10, 10 + count), pa.int64()),
            "properties": pa.array(maps, MAP),
        }
    )


def test_rows_are_where_their_messages_are() -> None:
    table = rows("q/0/0/1", None, "q/0/0/2", "q/0/1/1", "q/0/0/9", "q/0/0/1")
    assert locate_rows(table, {"q/0/0": [NumberRange(1, 2), NumberRange(8, 12)]}) == [
        SinkRowLocation("q/0/0", 1, "a", 3, 10),
        SinkRowLocation("q/0/0", 9, "a", 3, 14),
        SinkRowLocation("q/0/0", 1, "a", 3, 15),
    ]
    assert locate_rows(table, {"q/9/9": [NumberRange(0, 99)]}) == []


def test_a_place_is_described_in_a_few_words() -> None:
    assert str(SinkRowLocation("q/0/0", 1, "a", 3, 10)) == "a:3 at 10"


def test_a_task_reports_the_duplicates_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "f.parquet")
    pq.write_table(pa.Table.from_batches([rows("q/0/0/1", "q/0/0/1", "q/0/0/1")]), path)
    task_set = RowSearchTasks(
        groups=[[path, path]], topic="orders", wanted={"q/0/0": [NumberRange(1, 2)]}
    )
    assert len(task_set) == 1
    locations = msgspec.json.decode(task_set.run(0).payload, type=list[SinkRowLocation])
    assert [one.offset for one in locations] == [10, 11, 12, 10, 11, 12]
    monkeypatch.setattr(module, "LOCATIONS_MAX", 2)
    assert task_set.run(0).payload.count("q/0/0") == 2
