"""The files of a table are those that its readers see."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.model.errors import ConfigError
from roquet.spark.tables.listing import kind_of, listed
from roquet.spark.tables.opening import open_table
from roquet.spark.tables.table import Identity


def put(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": [1]}), path)
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_an_archive_says_its_kind_and_its_topic(tmp_path: Path, kind: str) -> None:
    with open_table(kind, str(tmp_path), Identity(topic="orders", columns=())):
        assert kind_of(tmp_path) == kind
        found = listed(str(tmp_path))
    assert (found.files, found.topic) == ((), "orders"), "an archive that writes is not in the way"


def test_files_of_anybody_are_found(tmp_path: Path) -> None:
    files = [put(tmp_path / "one.parquet"), put(tmp_path / "x=1" / "two.parquet")]
    put(tmp_path / "_temporary" / "three.parquet")
    put(tmp_path / ".hidden.parquet")
    found = listed(str(tmp_path))
    assert (found.files, found.topic) == (tuple(files), None)
    assert listed(files[0]).files == (files[0],)


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no table"):
        listed(str(tmp_path))
    with pytest.raises(ConfigError, match="is not there"):
        listed(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="no kind of table 'parqet'"):
        listed(str(tmp_path), "parqet")


def test_somebody_elses_delta_table_is_of_no_topic(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    found = listed(str(tmp_path))
    assert found.topic is None
    assert [Path(file).is_file() for file in found.files] == [True]


def test_tables_of_one_catalog_are_told_apart_by_name(tmp_path: Path) -> None:
    for topic in ("orders", "bills"):
        open_table("iceberg", str(tmp_path), Identity(topic=topic, columns=())).close()
    with pytest.raises(ConfigError, match=r"holds the tables roquet\.bills, roquet\.orders: name"):
        listed(str(tmp_path))
    assert listed(str(tmp_path), name="roquet.bills").topic == "bills"
