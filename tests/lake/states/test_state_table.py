"""The table says what it is of, and is neither mixed with another one nor taken for an archive."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Log
from tests.lake.kinds.delta.delta_log import age

from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.states.state_table import StateTable, state_identity
from roquet.lake.table import ArchiveIdentity
from roquet.model.errors import ConfigError


def identity(**settings: Any) -> Any:
    return state_identity(
        "accounts", **{"key": "key", "deletes": "tombstone", "buckets": 4, **settings}
    )


def test_a_table_has_the_columns_and_the_bucket(tmp_path: Path) -> None:
    with StateTable(tmp_path / "table", identity()):
        pass
    schema = Log(str(tmp_path / "table")).schema()
    names = [field.name for field in schema.fields]
    assert names == [*identity().columns, "bucket"]
    assert Log(str(tmp_path / "table")).metadata().partition_columns == ["bucket"]


def test_a_table_that_keeps_deleted_rows_marks_them(tmp_path: Path) -> None:
    with StateTable(tmp_path / "table", identity(deletes="keep")):
        pass
    names = [field.name for field in Log(str(tmp_path / "table")).schema().fields]
    assert names[-2:] == ["is_deleted", "bucket"]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"key": "property:id"}, "key key, not property:id"),
        ({"deletes": "keep"}, "deletes tombstone, not keep"),
        ({"buckets": 8}, "buckets 4, not 8"),
    ],
)
def test_a_table_is_continued_as_it_was_made(
    tmp_path: Path, other: dict[str, Any], text: str
) -> None:
    with StateTable(tmp_path / "table", identity()):
        pass
    with pytest.raises(ConfigError, match=text):
        StateTable(tmp_path / "table", identity(**other))
    with StateTable(tmp_path / "table", identity()) as table:
        assert table.settings == identity()


def test_an_archive_is_no_table_of_latest_states(tmp_path: Path) -> None:
    with DeltaTable(tmp_path / "table", ArchiveIdentity(topic="accounts", columns=())):
        pass
    with pytest.raises(ConfigError, match="not one that `roquet spark materialize` made"):
        StateTable(tmp_path / "table", identity())


def test_a_table_of_latest_states_is_no_archive(tmp_path: Path) -> None:
    with StateTable(tmp_path / "table", identity()):
        pass
    with pytest.raises(ConfigError, match="is a Delta table, but not an archive"):
        DeltaTable(tmp_path / "table", ArchiveIdentity(topic="accounts", columns=()))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"key": "id"}, "property:id"),
        ({"key": "property:"}, "the name of the property is missing"),
        ({"deletes": "soft"}, "tombstone or keep"),
        ({"buckets": 0}, "from 1 to 4096"),
        ({"columns": ("key", "body")}, "needs the column 'broker'"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        identity(**settings)


def test_a_table_of_an_earlier_roquet_finds_all_rows_once_it_is_opened(tmp_path: Path) -> None:
    root = tmp_path / "table"
    with StateTable(root, identity()) as table:
        settings, queue = table.settings, ("accounts", "broker-a", 0)
        rows: dict[str, Any] = {name: [None, None] for name in settings.columns}
        rows |= {"key": [None, "a"], "tag": ["UA", "UA"], "queue_offset": [0, 1]}
        directory = table.begin()
        writer = PartitionedWriter(directory, settings.schema, scheme=settings.key_buckets)
        writer.write(pa.RecordBatch.from_pydict(rows, schema=settings.schema))
        table.commit(table.state((queue,)).then({queue: 2}, directory.name, writer.close(), ()))
    age(root)
    conditions = [pc.field("tag") == "UA", pc.field("key").is_null(), pc.field("key") == "a"]
    for expected in ([0, 0, 1], [2, 1, 1]):
        rows_there = Log(str(root)).to_pyarrow_dataset()
        assert [rows_there.count_rows(filter=each) for each in conditions] == expected
        StateTable(root, identity()).close()
