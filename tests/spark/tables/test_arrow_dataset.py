"""A table of every kind is read by pyarrow alone, with its partitions."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.model.errors import ConfigError
from roquet.spark.tables.arrow_dataset import arrow_dataset

if TYPE_CHECKING:
    from tests.spark.tables.conftest import TableKind


def test_all_rows_of_every_kind_are_read(kind: "TableKind") -> None:
    with kind.open() as table:
        kind.archive(table, 0, 12)
        kind.archive(table, 12, 20)
    dataset = arrow_dataset(str(kind.root))
    assert dataset.count_rows() == 40
    places = dataset.to_table(columns=["broker", "queue_id", "queue_offset"]).to_pylist()
    assert sorted(tuple(row.values()) for row in places) == kind.whole(20)


@pytest.mark.parametrize("name", ["parquet", "delta"])
def test_the_day_is_a_column(name: str, kinds: "Callable[[str], TableKind]") -> None:
    kind = kinds(name)
    with kind.open() as table:
        kind.archive(table, 0, 12)
    days = arrow_dataset(str(kind.root)).to_table(columns=["day"])["day"]
    assert sorted(days.to_pylist()) == [date(2026, 1, 31)] * 20 + [date(2026, 2, 1)] * 4


def test_partitions_of_other_writers_are_columns(tmp_path: Path) -> None:
    directory = tmp_path / "a=b" / "table" / "carrier=UA"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"delay": [1]}), directory / "1.parquet")
    rows = arrow_dataset(str(tmp_path / "a=b" / "table")).to_table()
    assert rows.to_pylist() == [{"delay": 1, "carrier": "UA"}]


def test_a_table_without_rows_says_so(kinds: "Callable[[str], TableKind]") -> None:
    kind = kinds("parquet")
    with kind.open():
        pass
    with pytest.raises(ConfigError, match="has no rows yet"):
        arrow_dataset(str(kind.root))


def test_no_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no"):
        arrow_dataset(str(tmp_path / "nothing"))
