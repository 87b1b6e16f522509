"""Body columns of a Delta table: added once, whoever else writes to its log."""

import msgspec
import pytest
from deltalake import DeltaTable as Log
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableAlterer
from tests.lake.conftest import TableKind, patch_first, raising

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.lake.kinds.delta import columns as delta_columns
from roquet.lake.kinds.delta.columns import partition_columns, table_schema
from roquet.lake.table import ArchiveIdentity, TableConflict

ALL = tuple(BodyField(f"a_{name}", name) for name in FIELD_TYPES)


def test_partitions_are_columns_and_so_is_the_reason_of_a_bad_body() -> None:
    plain = ArchiveIdentity(topic="a", columns=("broker", "body"))
    assert table_schema(plain).names == ["broker", "body", "day"]
    assert partition_columns(plain) == ["day"]
    rich = msgspec.structs.replace(plain, partition_by="hour", body_format="json")
    assert table_schema(rich).names == ["broker", "body", "body_error", "day", "hour"]
    assert partition_columns(rich) == ["day", "hour"]


def test_columns_are_added_after_another_writers_entry(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta.open().close()
    calls = patch_first(monkeypatch, TableAlterer, "add_columns", raising(CommitFailedError()))
    delta_columns.add_body_fields(Log(str(delta.root)), ALL, delta.root)
    assert delta_columns.body_fields(Log(str(delta.root))) == ALL
    assert len(calls) == 2


def test_a_writer_that_is_always_too_late_adds_no_column(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta.open().close()
    monkeypatch.setattr(TableAlterer, "add_columns", raising(CommitFailedError()))
    with pytest.raises(TableConflict, match="no column was added"):
        delta_columns.add_body_fields(Log(str(delta.root)), ALL, delta.root)
