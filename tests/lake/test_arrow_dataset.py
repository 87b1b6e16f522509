"""A table of every kind is read by pyarrow alone, with its partitions."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.lake.conftest import WANTED, DirectoryObjects, TableKind, archive, commit_rows
from tests.lake.kinds.delta.delta_log import map_columns

from roquet.lake.arrow_dataset import arrow_dataset
from roquet.lake.open_table import open_table
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server


def test_all_rows_of_every_kind_are_read(kind: TableKind) -> None:
    kind.fill(12, 20)
    dataset = arrow_dataset(str(kind.root))
    assert dataset.count_rows() == 40
    places = dataset.to_table(columns=["broker", "queue_id", "queue_offset"]).to_pylist()
    assert sorted(tuple(row.values()) for row in places) == kind.whole(20)


def test_a_delta_table_is_read_without_a_file_system_in_python(delta: TableKind) -> None:
    """Threads of a reader that call Python while the interpreter ends abort the process."""
    delta.fill(12)
    files = arrow_dataset(str(delta.root)).filesystem
    assert isinstance(files, pafs.SubTreeFileSystem)
    assert isinstance(files.base_fs, pafs.LocalFileSystem)


def test_the_history_of_a_delta_table_is_not_read(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that runs all the time has tens of thousands of entries."""
    delta.fill(12)
    monkeypatch.delattr(DeltaTable, "history")
    assert arrow_dataset(str(delta.root)).count_rows() == 24


def test_a_table_with_other_names_in_its_files_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"queue_offset": [1, 2]}))
    map_columns(tmp_path)
    with pytest.raises(ConfigError, match="to other names in its files"):
        arrow_dataset(str(tmp_path))


def test_a_path_without_a_table_in_an_object_store_is_named(objects: DirectoryObjects) -> None:
    (objects.root / "lake" / "orders").mkdir()
    with pytest.raises(ConfigError, match=r"^s3://lake/orders is no delta table"):
        arrow_dataset("s3://lake/orders")


def test_the_day_is_a_column(delta: TableKind) -> None:
    delta.fill(12)
    days = arrow_dataset(str(delta.root)).to_table(columns=["day"])["day"]
    assert sorted(days.to_pylist()) == [date(2026, 1, 31)] * 20 + [date(2026, 2, 1)] * 4


def test_partitions_of_other_writers_are_columns(tmp_path: Path) -> None:
    directory = tmp_path / "a=b" / "table" / "carrier=UA"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"delay": [1]}), directory / "1.parquet")
    rows = arrow_dataset(str(tmp_path / "a=b" / "table")).to_table()
    assert rows.to_pylist() == [{"delay": 1, "carrier": "UA"}]


def test_a_table_without_rows_says_so(iceberg: TableKind) -> None:
    with iceberg.open():
        pass
    with pytest.raises(ConfigError, match="has no rows yet"):
        arrow_dataset(str(iceberg.root))


def test_no_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no"):
        arrow_dataset(str(tmp_path / "nothing"))


def test_files_of_a_delta_table_are_passed_over_by_their_ranges(delta: TableKind) -> None:
    delta.fill(5, 9)
    rows = arrow_dataset(str(delta.root))
    wanted = (pc.field("queue_offset") >= 5) & (pc.field("queue_id") == 1)
    assert len(list(rows.get_fragments(filter=wanted))) == 1
    assert rows.count_rows(filter=wanted) == 4


def test_a_column_without_statistics_beside_others_finds_its_rows(tmp_path: Path) -> None:
    """As in a table whose number of columns with statistics was raised."""
    write_deltalake(
        str(tmp_path),
        pa.table({"tag": ["UA"], "city": ["Bern"]}),
        configuration={"delta.dataSkippingNumIndexedCols": "1"},
    )
    log = DeltaTable(str(tmp_path))
    log.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "2"})
    wanted = pc.field("city") == "Bern"
    assert not log.to_pyarrow_dataset().count_rows(filter=wanted), "what deltalake finds"
    assert arrow_dataset(str(tmp_path)).count_rows(filter=wanted) == 1


def test_an_hour_is_a_column(delta: TableKind) -> None:
    identity = msgspec.structs.replace(delta.wanted, partition_by="hour")
    with delta.open(wanted=identity) as table:
        commit_rows(table, delta.offsets(12), delta.batch(range(12)))
    rows = arrow_dataset(str(delta.root))
    assert rows.count_rows(filter=pc.field("hour") == 0) == 2


def test_a_table_of_a_catalog_is_read_by_its_name(tmp_path: Path) -> None:
    catalog = {"uri": f"sqlite:///{tmp_path}/mine.db"}
    with open_table("iceberg", str(tmp_path / "lake"), WANTED, name="a.b", catalog=catalog) as one:
        archive(one, 0, 12)
    assert arrow_dataset("a.b", catalog=catalog).count_rows() == 24
    with pytest.raises(ConfigError, match=r"no table 'a\.c'; did you mean 'a\.b'"):
        arrow_dataset("a.c", catalog=catalog)


def test_a_directory_with_a_table_of_its_own_needs_no_catalog(kind: TableKind) -> None:
    """So a query can join it with tables of a catalog."""
    kind.fill(12)
    assert arrow_dataset(str(kind.root), catalog={"uri": "sqlite:///nothing.db"}).count_rows() == 24


def test_an_iceberg_table_in_an_object_store_is_found_by_its_catalog(
    s3: "S3Server", tmp_path: Path
) -> None:
    target, catalog = f"s3://{s3.bucket}/lake/orders", {"uri": f"sqlite:///{tmp_path}/mine.db"}
    with open_table("iceberg", target, WANTED, catalog=catalog) as table:
        archive(table, 0, 12)
    assert arrow_dataset(target, catalog=catalog).count_rows() == 24
    assert arrow_dataset("roquet.orders", catalog=catalog).count_rows() == 24
    with pytest.raises(ConfigError, match="An Iceberg table is found by its catalog"):
        arrow_dataset(target)
