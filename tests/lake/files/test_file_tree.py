"""Files of a directory or an object store appear with all of their bytes or not at all."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.lake.conftest import DirectoryObjects

from roquet.lake.files.file_tree import FileTree, file_tree, parquet_bytes
from roquet.lake.objects.object_location import ObjectLocation, TableLocation

SCHEMA = pa.schema({"at": pa.int64(), "group": pa.string()})
ROWS = pa.table({"at": [1, 2], "group": ["a", "b"]}, SCHEMA)


@pytest.fixture(params=["directory", "objects"])
def location(
    request: pytest.FixtureRequest, tmp_path: Path, objects: DirectoryObjects
) -> TableLocation:
    """A place that does not exist yet."""
    is_directory = request.param == "directory"
    return tmp_path / "lake" if is_directory else ObjectLocation("s3://lake/lag")


@pytest.fixture
def store(location: TableLocation) -> FileTree:
    return file_tree(location)


def test_an_empty_place_has_no_files(store: FileTree) -> None:
    assert store.names() == set()
    assert store.list_directory("samples") == []
    assert store.rows([], SCHEMA, ["at"]).schema.names == ["at"]


def test_files_are_put_listed_read_and_removed(store: FileTree) -> None:
    store.put("samples/2.parquet", parquet_bytes(ROWS))
    store.put("samples/1.parquet", parquet_bytes(ROWS.slice(1)))
    store.put("samples/1.parquet", parquet_bytes(ROWS.slice(0, 1)))
    store.put("page.html", b"<html>")
    assert store.names() == {"samples", "page.html"}
    paths = store.list_directory("samples")
    assert paths == ["samples/1.parquet", "samples/2.parquet"]
    assert store.rows(paths, SCHEMA)["at"].to_pylist() == [1, 1, 2]
    assert store.rows(paths[1:], SCHEMA, ["group"]).to_pydict() == {"group": ["a", "b"]}
    store.remove("samples/1.parquet")
    store.remove("samples/1.parquet")
    assert store.list_directory("samples") == ["samples/2.parquet"]


def test_a_file_that_was_not_written_to_its_end_is_not_there(store: FileTree) -> None:

    def write_half() -> None:
        with store.writer("letters/a.parquet") as stream:
            stream.write(b"half of it")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert store.list_directory("letters") == []
    with store.writer("letters/a.parquet") as stream:
        stream.write(b"all ")
        stream.write(b"of it")
        assert store.list_directory("letters") == []
    assert store.list_directory("letters") == ["letters/a.parquet"]


def test_a_file_is_larger_than_what_waits_in_memory(
    store: FileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.lake.objects.object_store.SPOOL_BYTES", 10)
    with store.writer("a.parquet") as stream:
        stream.write(parquet_bytes(ROWS))
    assert store.rows(["a.parquet"], SCHEMA) == ROWS


def test_a_file_has_an_address(store: FileTree, location: TableLocation) -> None:
    assert store.address("lag.html") == f"{location}/lag.html"
