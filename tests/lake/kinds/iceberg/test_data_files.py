"""Data files: entries with the statistics of their footers, and the way back."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from tests.lake.conftest import TableKind

from roquet.lake.columns.partition_scheme import DAILY
from roquet.lake.kinds.iceberg.data_files import described, entries_of, file_of
from roquet.lake.kinds.iceberg.layout import partition_record
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import DataFile
from roquet.model.errors import ConfigError


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
