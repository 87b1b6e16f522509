"""Data files: entries with the statistics of their footers, and the way back."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from roquet.spark.tables.iceberg.data_files import described, entries_of, file_of
from roquet.spark.tables.iceberg.layout import partition_record
from roquet.spark.tables.partition_scheme import DAILY
from roquet.spark.tables.table import DataFile

if TYPE_CHECKING:
    from tests.spark.tables.conftest import TableKind


@pytest.fixture
def iceberg(kinds: "Callable[[str], TableKind]") -> "TableKind":
    return kinds("iceberg")


def bare(file: DataFile) -> DataFile:
    return DataFile(name=file.name, day=file.day, rows=file.rows, size=file.size)


def test_an_entry_says_what_its_file_holds(iceberg: "TableKind") -> None:
    with iceberg.open() as table:
        iceberg.archive(table, 0, 3)
        listed = table.files()
    with SqlCatalog("roquet", uri=f"sqlite:///{iceberg.root}/catalog.db") as catalog:
        loaded = catalog.load_table("roquet.orders")
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
