"""Snapshots are read while an archive holds the table, and change nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.conftest import commit_rows

from roquet.lake.columns.partitioning import archive_columns, schema_of
from roquet.lake.files.staging import PARQUET_ARCHIVE
from roquet.lake.open_table import open_table
from roquet.lake.snapshot import kind_of, read_snapshot
from roquet.lake.table import ArchiveIdentity, ArchiveTable
from roquet.model.errors import ConfigError

KINDS = ("delta", "iceberg")
COLUMNS = archive_columns(("broker", "queue_id", "queue_offset", "stored_at"))
QUEUE = ("orders", "a", 0)


def opened(kind: str, root: Path) -> ArchiveTable:
    return open_table(kind, str(root), ArchiveIdentity(topic="orders", columns=COLUMNS))


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "broker": ["a"] * count,
            "queue_id": [0] * count,
            "queue_offset": list(range(first, first + count)),
            "stored_at": [1_769_860_800_000_000] * count,
        },
        schema_of(COLUMNS),
    )


def append(table: ArchiveTable, first: int, count: int) -> None:
    """A commit, as an archive makes it."""
    commit_rows(table, {QUEUE: first + count}, *([rows(first, count)] if count else []))


def offsets(paths: tuple[str, ...]) -> list[int]:
    return sorted(
        n for path in paths for n in pq.ParquetFile(path).read()["queue_offset"].to_pylist()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_seen_while_it_is_held(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with opened(kind, root) as table:
        append(table, 3, 0)
        append(table, 3, 4)
        append(table, 7, 2)
        held = read_snapshot(str(root), "orders")
    assert (held.topic, held.kind, held.number) == ("orders", kind, 3)
    assert (held.begin, held.end) == ({QUEUE: 3}, {QUEUE: 9})
    assert offsets(held.paths) == list(range(3, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_another_topic_is_an_error(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "lake") as table:
        append(table, 0, 1)
    with pytest.raises(ConfigError, match=r"of topic 'orders', not of 'paid'|has no table"):
        read_snapshot(str(tmp_path / "lake"), "paid")


def test_a_table_knows_its_topic(tmp_path: Path) -> None:
    with opened("delta", tmp_path / "lake") as table:
        append(table, 0, 1)
    assert read_snapshot(str(tmp_path / "lake")).topic == "orders"


def test_an_empty_archive_is_one(tmp_path: Path) -> None:
    with opened("delta", tmp_path / "lake"):
        held = read_snapshot(str(tmp_path / "lake"), "orders")
    assert (held.number, held.end, held.begin, held.paths) == (0, {}, None, ())


def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    for name in ("part-0.parquet", "day=2026-01-31/part-1.parquet", "_temporary/part-2.parquet"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_batches([rows(0, 1)]), path)
    held = read_snapshot(str(tmp_path), "orders")
    assert (held.kind, held.end, held.begin, len(held.paths)) == ("files", None, None, 2)
    assert read_snapshot(str(tmp_path)).topic == ""
    assert read_snapshot(held.paths[0]).paths == held.paths[:1], "one file, too"


def test_the_files_of_a_parquet_archive_are_read_as_those_of_other_writers(tmp_path: Path) -> None:
    for name in ("_roquet/staging/a/roquet-2.parquet", "day=2026-01-31/roquet-1.parquet"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_batches([rows(0, 1)]), path)
    (tmp_path / PARQUET_ARCHIVE).write_text("{}")
    assert kind_of(tmp_path) == "files"
    held = read_snapshot(str(tmp_path), "orders")
    assert (held.kind, offsets(held.paths)) == ("files", [0])


def test_a_path_without_a_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no"):
        read_snapshot(str(tmp_path / "lake"), "orders")
    with pytest.raises(ConfigError, match="neither Parquet files nor an archive"):
        read_snapshot(str(tmp_path), "orders")
    with pytest.raises(ConfigError, match="no kind of table 'parqet'"):
        read_snapshot(str(tmp_path), kind="parqet")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_directory_of_another_kind_is_an_error_and_left_alone(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"is no {kind} table: it has no "):
        read_snapshot(str(tmp_path), kind=kind)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_names_its_kind_and_its_topic(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path):
        assert kind_of(tmp_path) == kind
        held = read_snapshot(str(tmp_path))
    assert (held.paths, held.topic) == ((), "orders")


def test_somebody_elses_delta_table_is_of_no_topic(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    held = read_snapshot(str(tmp_path))
    assert (held.topic, held.end) == ("", None)
    assert [Path(path).is_file() for path in held.paths] == [True]


def test_tables_of_one_catalog_are_distinguished_by_name(tmp_path: Path) -> None:
    for topic in ("orders", "bills"):
        open_table("iceberg", str(tmp_path), ArchiveIdentity(topic=topic, columns=())).close()
    with pytest.raises(ConfigError, match=r"holds the tables roquet\.bills, roquet\.orders: name"):
        read_snapshot(str(tmp_path))
    assert read_snapshot(str(tmp_path), name="roquet.bills").topic == "bills"
