"""Layout of an Iceberg table: its own partition transforms and sort order, and what they prune."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.table import Table as IceTable
from pyiceberg.typedef import Record
from tests.lake.conftest import START, TableKind, commit_rows, patch_first, raising

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.lake.columns.partition_scheme import DAILY, parse_scheme
from roquet.lake.columns.partitioning import NO_DAY, schema_of
from roquet.lake.kinds.iceberg import layout
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.kinds.iceberg.layout import described, entries_of, file_of, partition_record
from roquet.lake.snapshot import read_snapshot
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


def bare(file: DataFile) -> DataFile:
    return DataFile(name=file.name, day=file.day, rows=file.rows, size=file.size)


def test_an_entry_says_what_its_file_holds(iceberg: TableKind) -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        listed = table.files()
    with iceberg.loaded() as loaded:
        entries = list(entries_of(loaded, loaded.current_snapshot()))
        assert sorted(map(file_of, entries), key=lambda file: file.name) == sorted(
            listed, key=lambda file: file.name
        )
        again = list(described(loaded, listed, lambda file: partition_record(file, DAILY)))
        for entry, file in zip(again, listed, strict=True):
            assert bare(file_of(entry)) == bare(file)
            offset = loaded.schema().find_field("queue_offset").field_id
            assert entry.lower_bounds[offset] == (0).to_bytes(8, "little")
            assert entry.upper_bounds[offset] == (2).to_bytes(8, "little")
        assert list(entries_of(loaded, None)) == []


def delete_rows(table: Table, file: DataFile, *positions: int) -> None:
    """Commit a file of deleted positions, as engines do that merge when they read."""
    path = f"{table.location()}/data/deletes.parquet"
    ids = {"file_path": "2147483546", "pos": "2147483545"}  # reserved by the specification
    kinds = {"file_path": pa.string(), "pos": pa.int64()}
    schema = pa.schema(
        [pa.field(name, kinds[name], False, {"PARQUET:field_id": ids[name]}) for name in kinds]
    )
    target = f"{table.location()}/data/{file.path}"
    rows = {"file_path": [target] * len(positions), "pos": list(positions)}
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table(rows, schema), stream)
    commit_deletes(table, file, path, content=DataFileContent.POSITION_DELETES, rows=len(positions))


def delete_values(table: Table, file: DataFile, offset: int) -> None:
    """Commit a file of deleted values, as engines do that write streams."""
    path = f"{table.location()}/data/equal.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table({"queue_offset": [offset]}), stream)
    ids = [table.schema().find_field("queue_offset").field_id]
    commit_deletes(table, file, path, content=DataFileContent.EQUALITY_DELETES, equality_ids=ids)


def commit_deletes(
    table: Table,
    file: DataFile,
    path: str,
    *,
    content: DataFileContent,
    rows: int = 1,
    equality_ids: list[int] | None = None,
) -> None:
    """Commit a delete file about the rows of a data file."""
    entry = Entry.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition_record(file, DAILY),
        record_count=rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=equality_ids,
        spec_id=table.metadata.default_spec_id,
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        table.transaction() as change,
        change.update_snapshot().fast_append() as snapshot,
    ):
        patch.setattr(ManifestWriterV2, "content", lambda _: ManifestContent.DELETES)
        snapshot.append_data_file(entry)


def test_rows_that_another_writer_deleted_do_not_come_back(iceberg: TableKind) -> None:
    """A merged file would have them again: its delete file is about another one."""
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        state, files = table.state(iceberg.queues), table.files()
        attempt = table.begin()
        merged = iceberg.written(attempt, iceberg.batch(range(3)))
        with iceberg.loaded() as others:
            delete_rows(others, files[0], 0, 2)
            assert others.scan().to_arrow().num_rows == 4, "pyiceberg has understood it"
        with pytest.raises(ConfigError, match=r"has delete files, so .*rewrite_data_files"):
            table.files()
        commit = state.then(state.offsets, attempt.name, merged, files)
        with pytest.raises(ConfigError, match="has delete files"):
            table.commit(commit)
        iceberg.archive(table, 3, 5)
    with pytest.raises(ConfigError, match=r"has delete files, so .* no file is read, merged"):
        read_snapshot(str(iceberg.root))
    assert iceberg.rows().num_rows == 8, "an archive goes on, and what is deleted stays so"


def test_rows_that_another_writer_deleted_by_their_values_are_a_sentence_for_readers(
    iceberg: TableKind,
) -> None:
    """pyiceberg cannot even list the files of such a table."""
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        [file, *_] = table.files()
        with iceberg.loaded() as others:
            delete_values(others, file, 1)
            with pytest.raises(ValueError, match="not yet support equality deletes"):
                list(others.scan().plan_files())
        with pytest.raises(ConfigError, match="has delete files"):
            table.files()
    with pytest.raises(ConfigError, match=r"has delete files, so .*rewrite_data_files"):
        read_snapshot(str(iceberg.root))
