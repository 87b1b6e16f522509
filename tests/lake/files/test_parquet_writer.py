"""Parquet writer: complete files by day, with unique names."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.conftest import START, DirectoryObjects, TableKind

from roquet.lake.columns.column_statistics import ColumnStatistics
from roquet.lake.columns.partition_scheme import PartitionScheme
from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files import parquet_writer
from roquet.lake.files.output_files import UploadedFile
from roquet.lake.files.parquet_writer import PartitionedWriter, read_sorted
from roquet.lake.objects.object_location import ObjectDirectory, ObjectLocation
from roquet.lake.objects.object_store import StorageFailed

COLUMNS = ("topic", "broker", "queue_id", "queue_offset", "body", "properties", "stored_at")


@pytest.fixture
def parquet(kinds: "Callable[[str], TableKind]") -> TableKind:
    return kinds("parquet")


def test_a_file_has_statistics_of_its_rows(tmp_path: Path, parquet: TableKind) -> None:
    [file] = parquet.written(
        tmp_path, parquet.batch(range(3), queue_id=7), parquet.batch(range(3, 9))
    )
    path = tmp_path / file.name
    assert (file.day, file.rows, file.size) == ("2026-01-31", 9, path.stat().st_size)
    least, most = file.statistics.least, file.statistics.most
    assert least == {
        "queue_id": 0,
        "queue_offset": 0,
        "stored_at": "2026-01-31T23:50:00.000000+00:00",
    }
    assert most["queue_offset"] == 8
    assert file.path == f"day=2026-01-31/{file.name}"


def test_small_batches_share_a_row_group(
    tmp_path: Path, parquet: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    [file] = parquet.written(tmp_path, *(parquet.batch([at]) for at in range(9)))
    assert pq.read_metadata(tmp_path / file.name).num_row_groups == 1
    monkeypatch.setattr(parquet_writer, "GROUP_BYTES", 1)
    [file] = parquet.written(tmp_path, *(parquet.batch([at]) for at in range(9)))
    assert pq.read_metadata(tmp_path / file.name).num_row_groups == 9


def test_a_large_file_ends_and_another_begins(
    tmp_path: Path, parquet: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_BYTES", 1)
    writer = PartitionedWriter(tmp_path, schema_of(COLUMNS), file_bytes=1)
    writer.write(parquet.batch(range(3)))
    writer.write(parquet.batch(range(3, 9)))
    assert [file.rows for file in writer.close()] == [3, 6]


def test_few_days_are_open_at_once(
    tmp_path: Path, parquet: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_writer, "OPEN_MAX", 1)
    files = parquet.written(tmp_path, parquet.batch(range(20)), parquet.batch(range(20, 30)))
    assert [(file.day, file.rows) for file in files] == [("2026-01-31", 10), ("2026-02-01", 20)]


def test_without_rows_no_file_is_written(tmp_path: Path, parquet: TableKind) -> None:
    assert parquet.written(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_given_up_lets_its_files_go(tmp_path: Path, parquet: TableKind) -> None:
    writer = PartitionedWriter(tmp_path, schema_of(COLUMNS))
    writer.write(parquet.batch(range(3)))
    writer.abort()
    assert writer.close() == []


def test_a_file_whose_upload_failed_is_removed_with_the_others(
    objects: DirectoryObjects, parquet: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ObjectDirectory(ObjectLocation("s3://lake/orders"), "attempt")
    writer = PartitionedWriter(directory, schema_of(COLUMNS))
    writer.write(parquet.batch(range(3)))

    def fail(_: UploadedFile) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(UploadedFile, "complete", fail)
    with pytest.raises(StorageFailed, match=r"^s3://lake/orders: the store is away$"):
        writer.close()
    writer.abort()
    assert objects.stored() == set()


def test_several_files_are_read_in_the_order_of_queues_and_offsets(
    tmp_path: Path, parquet: TableKind
) -> None:
    batches = [
        parquet.batch([3, 4]),
        parquet.batch([0, 9], broker="broker-b"),
        parquet.batch([1, 2]),
    ]
    names = [parquet.written(tmp_path, one)[0].name for one in batches]
    [rows_read] = read_sorted([tmp_path / name for name in names], schema_of(COLUMNS))
    places = zip(
        rows_read["broker"].to_pylist(), rows_read["queue_offset"].to_pylist(), strict=True
    )
    assert list(places) == [("broker-a", at) for at in (1, 2, 3, 4)] + [
        ("broker-b", 0),
        ("broker-b", 9),
    ]
    assert rows_read.schema.equals(schema_of(COLUMNS))
    assert isinstance(rows_read, pa.Table)


def test_rows_are_sorted_by_chosen_columns_first(tmp_path: Path, parquet: TableKind) -> None:
    [file] = parquet.written(tmp_path, parquet.batch([9, 1, 0, 5]))
    [rows] = read_sorted([tmp_path / file.name], schema_of(COLUMNS), {}, ["body"])
    assert rows["body"].to_pylist() == [b"0", b"1", b"5", b"9"]


def test_many_rows_are_sorted_in_runs(
    tmp_path: Path, parquet: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_writer, "RUN_BYTES", 1)
    names = [parquet.written(tmp_path, parquet.batch(o))[0].name for o in ([2, 3], [0, 1])]
    runs = list(read_sorted([tmp_path / name for name in names], schema_of(COLUMNS)))
    assert [run["queue_offset"].to_pylist() for run in runs] == [[2, 3], [0, 1]]


def test_a_file_that_is_older_than_a_column_has_nulls_in_it(
    tmp_path: Path, parquet: TableKind
) -> None:
    [file] = parquet.written(tmp_path, parquet.batch(range(3)))
    wider = pa.schema([*schema_of(COLUMNS), pa.field("id", pa.int64())])
    [rows] = read_sorted([tmp_path / file.name], wider)
    assert rows.schema == wider
    assert rows["id"].null_count == len(rows) == 3


def test_buckets_are_files_of_their_own_in_smaller_row_groups(tmp_path: Path) -> None:
    schema = schema_of(("key", "stored_at"))
    rows = {"key": [f"k{at}" for at in range(500)], "stored_at": [START] * 500}
    scheme = PartitionScheme(bucket_column="key", buckets=64)
    writer = PartitionedWriter(tmp_path, schema, scheme=scheme)
    writer.write(pa.RecordBatch.from_pydict(rows, schema=schema))
    files = writer.close()
    assert len(files) == 64, "all were open at once"
    assert sum(file.rows for file in files) == 500
    assert {file.path.rpartition("/")[0] for file in files} == {
        f"day=2026-01-31/key_bucket={at}" for at in range(64)
    }


def test_a_file_has_the_statistics_of_its_columns(tmp_path: Path) -> None:
    schema = schema_of(("key", "tag", "stored_at"))
    writer = PartitionedWriter(tmp_path, schema)
    rows = {"key": ["b", None, "a"], "tag": ["x", "y", "z"], "stored_at": [START] * 3}
    writer.write(pa.RecordBatch.from_pydict(rows, schema=schema))
    [file] = writer.close()
    stored_at = START.isoformat(timespec="microseconds")
    assert file.statistics == ColumnStatistics(
        least={"key": "a", "stored_at": stored_at},
        most={"key": "b", "stored_at": stored_at},
        nulls={"key": 1, "stored_at": 0},
    )
