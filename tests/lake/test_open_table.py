"""open_table: the kind by its name, and errors for impossible targets."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lake.conftest import DirectoryObjects

from roquet.lake.files.staging import PARQUET_ARCHIVE
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.open_table import KINDS, directory, open_table, table_location
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import ArchiveIdentity
from roquet.model.errors import ConfigError

WANTED = ArchiveIdentity(topic="orders", columns=())


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_opened_by_its_name(tmp_path: Path, kind: str) -> None:
    with open_table(kind, str(tmp_path / "lake"), WANTED) as table:
        assert type(table).__name__.lower() == f"{kind}table"
        assert table.identity.topic == "orders"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_is_not_said_is_that_of_the_table(tmp_path: Path, kind: str) -> None:
    with open_table(kind, str(tmp_path / "lake"), WANTED):
        pass
    with open_table("", str(tmp_path / "lake"), WANTED) as table:
        assert table.kind == kind
    with open_table("", str(tmp_path / "new"), WANTED) as table:
        assert table.kind == "delta"


def test_a_kind_that_there_is_not_is_named_with_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kind of table 'icebreg'; did you mean 'iceberg'"):
        open_table("icebreg", str(tmp_path), WANTED)


@pytest.mark.parametrize("target", ["lake", "s3://lake/orders"])
def test_the_kind_parquet_is_refused_with_those_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="Write --kind delta, the default, or iceberg"):
        open_table("parquet", target, WANTED)
    with pytest.raises(ConfigError, match="are read without --kind"):
        read_snapshot(target, kind="parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["parquet", *KINDS])
def test_a_parquet_archive_is_named_and_left_alone(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / PARQUET_ARCHIVE
    mark.parent.mkdir()
    mark.write_text("{}")
    says = f"^{tmp_path} is an archive of kind parquet, .*: start a new Delta archive .* beside it"
    with pytest.raises(ConfigError, match=says):
        open_table(kind, str(tmp_path), WANTED)
    assert [*tmp_path.rglob("*")] == [mark.parent, mark]


def test_catalogs_are_for_iceberg(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="are for Iceberg tables, not for delta"):
        open_table("delta", str(tmp_path), WANTED, name="lake.orders")


def test_buckets_are_for_the_kind_that_knows_them(tmp_path: Path) -> None:
    bucketed = ArchiveIdentity(topic="orders", columns=(), partition_by="bucket(key,4)")
    with pytest.raises(ConfigError, match="delta tables have no buckets; use day or hour"):
        open_table("delta", str(tmp_path), bucketed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_extra_that_is_missing_is_named(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name in {"deltalake", "pyiceberg"}:
            raise ImportError(name)
        return really(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=rf"pip install 'roquet\[{kind}\]'"):
        open_table(kind, str(tmp_path / "lake"), WANTED)
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_a_path_or_a_file_url(tmp_path: Path) -> None:
    assert directory("/lake/orders of today") == Path("/lake/orders of today")
    assert directory("file:///lake/orders%20of%20today") == Path("/lake/orders of today")
    assert directory("lake") == Path.cwd() / "lake"


@pytest.mark.parametrize("target", ["s3://lake/orders", "hdfs://namenode/lake"])
def test_a_path_that_is_no_directory_is_an_error(target: str) -> None:
    with pytest.raises(ConfigError, match="is no directory, and here one is needed"):
        directory(target)


def test_a_location_is_a_directory_or_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert table_location("/lake/orders") == Path("/lake/orders")
    location = ObjectLocation("s3://lake/orders", {"AWS_REGION": "eu-west-1"})
    assert table_location("s3://lake/orders") == location


def test_storage_options_are_for_object_stores() -> None:
    with pytest.raises(ConfigError, match="are for object stores, and /lake is a directory"):
        open_table("delta", "/lake", WANTED, storage={"AWS_REGION": "eu-west-1"})


def test_an_iceberg_table_of_another_store_than_s3_is_refused() -> None:
    url = "abfss://lake@acme.dfs.core.windows.net/orders"
    with pytest.raises(ConfigError, match="tables in abfss:// are of kind delta, not iceberg"):
        open_table("iceberg", url, WANTED, catalog={"type": "sql", "uri": "sqlite://"})
    with pytest.raises(ConfigError, match="tables in gs:// are of kind delta, not iceberg"):
        read_snapshot("gs://lake/orders", kind="iceberg")


def test_a_delta_table_may_lie_in_an_object_store(objects: DirectoryObjects) -> None:
    ObjectStore(ObjectLocation("s3://lake/orders")).put("theirs.csv", b"")
    with pytest.raises(ConfigError, match="s3://lake/orders is not empty and no archive"):
        open_table("delta", "s3://lake/orders", WANTED)


def test_a_relative_directory_may_have_a_colon() -> None:
    assert directory("lag:1") == Path.cwd() / "lag:1"
