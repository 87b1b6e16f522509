"""Layout of an Iceberg table: its own partition transforms and sort order, and what they prune."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table as IceTable
from pyiceberg.typedef import Record
from tests.lake.conftest import START, TableKind, commit_rows, patch_first, raising

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.lake.columns.partition_scheme import parse_scheme
from roquet.lake.columns.partitioning import NO_DAY, schema_of
from roquet.lake.kinds.iceberg import layout
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.kinds.iceberg.layout import partition_record
from roquet.lake.table import ArchiveIdentity, DataFile, TableConflict
from roquet.model.errors import ConfigError

COLUMNS = ("broker", "queue_id", "queue_offset", "key", "stored_at")

ROWS = 200

OpenLake = Callable[[], AbstractContextManager[IceTable]]


@pytest.fixture
def lake(tmp_path: Path) -> Callable[..., OpenLake]:
    """Writes a table of keyed rows, one a minute, and gives what opens it as others do."""

    def write(partition_by: str = "", sort_by: Sequence[str] = ()) -> OpenLake:
        wanted = ArchiveIdentity(
            topic="orders", columns=COLUMNS, partition_by=partition_by, sort_by=tuple(sort_by)
        )
        with IcebergTable(tmp_path, wanted) as table:
            commit_rows(table, {("orders", "a", 0): ROWS}, rows())
        return opened

    @contextmanager
    def opened() -> Any:
        with SqlCatalog("roquet", uri=f"sqlite:///{tmp_path}/catalog.db") as catalog:
            yield catalog.load_table("roquet.orders")

    return write


def rows() -> pa.RecordBatch:
    keys: list[str | None] = [f"key-{at % 20}" for at in range(ROWS)]
    keys[0] = None
    columns: dict[str, list[Any]] = {
        "broker": ["a"] * ROWS,
        "queue_id": [0] * ROWS,
        "queue_offset": list(range(ROWS)),
        "key": keys,
        "stored_at": [START + timedelta(minutes=at) for at in range(ROWS)],
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema_of(COLUMNS))


def planned(table: IceTable, condition: Any) -> tuple[int, int]:
    """The files and rows of a scan with a condition."""
    scan = table.scan(condition)
    return len(list(scan.plan_files())), scan.to_arrow().num_rows


def test_hours_are_a_transform_of_the_stored_time(lake: Callable[..., OpenLake]) -> None:
    with lake("hour")() as table:
        assert [(f.name, str(f.transform)) for f in table.spec().fields] == [("hour", "hour")]
        assert planned(table, "stored_at < '2026-02-01T00:00:00+00:00'") == (1, 10)
        assert planned(table, "stored_at >= '2026-02-01T02:00:00+00:00'") == (2, 70)
        assert table.scan().to_arrow().num_rows == ROWS


def test_buckets_are_those_that_readers_look_in(lake: Callable[..., OpenLake]) -> None:
    with lake("bucket(key,4)")() as table:
        fields = [(f.name, str(f.transform)) for f in table.spec().fields]
        assert fields == [("day", "day"), ("key_bucket", "bucket[4]")]
        everything = len(list(table.scan().plan_files()))
        for number in range(20):
            files, found = planned(table, f"key = 'key-{number}'")
            assert found == ROWS // 20 - (number == 0)
            assert files <= 2 < everything, "one bucket of two days"
        assert planned(table, "key is null") == (1, 1)
        assert table.scan().to_arrow().num_rows == ROWS


def test_the_order_of_rows_is_the_tables_sort_order(lake: Callable[..., OpenLake]) -> None:
    with lake(sort_by=("key", "queue_offset"))() as table:
        names = [table.schema().find_column_name(f.source_id) for f in table.sort_order().fields]
        assert names == ["key", "queue_offset"]


def test_statistics_of_the_files_prune_offsets_times_and_keys(
    lake: Callable[..., OpenLake],
) -> None:
    with lake()() as table:
        assert len(list(table.scan().plan_files())) == 2
        late = "stored_at >= '2026-02-01T00:30:00+00:00'"
        for condition in ("queue_offset = 5", "queue_offset >= 10", "key = 'zzz'", late):
            assert len(list(table.scan(condition).plan_files())) < 2, condition


def values(record: Record) -> list[Any]:
    return [record[at] for at in range(len(record))]


def test_rows_without_a_time_or_key_have_null_partitions() -> None:
    scheme = parse_scheme("hour,bucket(key,4)", COLUMNS)
    within = f"hour={NO_DAY}/key_bucket={NO_DAY}"
    file = DataFile(name="a", day=NO_DAY, within=within, rows=1, size=1)
    assert values(partition_record(file, scheme)) == [None, None]
    file = DataFile(name="a", day="1970-01-02", within="hour=3/key_bucket=2", rows=1, size=1)
    assert values(partition_record(file, scheme)) == [27, 2]


ALL = tuple(BodyField(f"a_{name}", name) for name in FIELD_TYPES)


def test_every_type_is_found_again(iceberg: TableKind) -> None:
    with iceberg.open(wanted=msgspec.structs.replace(iceberg.wanted, body_format="json")) as table:
        table.add_body_fields(ALL[:3])
        table.add_body_fields(ALL)
        table.add_body_fields(())
        assert table.body_fields() == ALL
        with pytest.raises(ConfigError, match=r"roquet\.orders has the column a_int int"):
            table.add_body_fields([BodyField("a_int", "string")])


def test_a_table_without_body_columns_has_none(iceberg: TableKind) -> None:
    with iceberg.open() as table:
        assert table.body_fields() == ()


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
@pytest.mark.parametrize("is_made", [False, True])
def test_columns_are_added_once_whatever_becomes_of_the_answer(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch, error: type[Exception], is_made: bool
) -> None:
    def fails(commit: Callable[..., Any], *args: Any) -> None:
        if is_made:
            commit(*args)
        raise error("at the wrong moment")

    iceberg.open().close()
    calls = patch_first(monkeypatch, SqlCatalog, "commit_table", fails)
    with iceberg.loaded() as table:
        layout.add_body_fields(table, ALL, "lake")
    with iceberg.loaded() as table:
        assert layout.body_fields(table) == ALL
    assert len(calls) == 2 - is_made


def test_a_writer_that_is_always_too_late_adds_no_column(
    iceberg: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.open().close()
    with iceberg.loaded() as table:
        monkeypatch.setattr(SqlCatalog, "commit_table", raising(CommitFailedException()))
        with pytest.raises(TableConflict, match="no column was added"):
            layout.add_body_fields(table, ALL, "lake")
