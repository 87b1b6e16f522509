"""Table place: inside of the target, and free of the files of others."""

from pathlib import Path

import pytest
from tests.lake.conftest import DirectoryObjects

from roquet.lake.kinds.iceberg.table_place import (
    check_free,
    check_place,
    local_path,
    object_home,
    relative_path,
)
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.model.errors import ConfigError


def test_a_table_has_to_lie_in_its_target() -> None:
    target = ObjectLocation("s3://lake/b")
    check_place(target, "s3a://lake/b/roquet/orders")
    for home in ("s3://lake/a/roquet/orders", "s3://lake/bc", "file:///lake/b"):
        with pytest.raises(ConfigError, match="outside of s3://lake/b"):
            check_place(target, home)


def test_paths_are_relative_to_the_tables_files() -> None:
    home = object_home(ObjectLocation("s3://lake/b", {"AWS_REGION": "x"}), "s3a://lake/b/orders/")
    assert home == ObjectLocation("s3://lake/b/orders", {"AWS_REGION": "x"})
    for path in ("day=2026-01-31/a.parquet", "day=2026-01-31/hour=3/a.parquet", "bucket=3/a"):
        assert relative_path(f"{home}/data/{path}") == path


def test_a_new_table_shares_its_place_with_no_other_files(objects: DirectoryObjects) -> None:
    target = ObjectLocation("s3://lake/b")
    check_free(target, "s3a://lake/b/roquet/orders/")
    ObjectStore(ObjectLocation("s3://lake/b/roquet/orders")).put("theirs.csv", b"")
    with pytest.raises(ConfigError, match="is not empty, and the catalog knows no table there"):
        check_free(target, "s3a://lake/b/roquet/orders/")


def test_a_directory_with_data_that_no_catalog_knows_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "roquet" / "orders"
    check_free(tmp_path, f"file://{home}")
    (home / "metadata").mkdir(parents=True)
    (home / "metadata" / "00000.metadata.json").write_bytes(b"{}")
    check_free(tmp_path, f"file://{home}")
    (home / "data" / "day=2026-01-31").mkdir(parents=True)
    (home / "data" / "day=2026-01-31" / "a.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match="has data files, and the catalog knows no table there"):
        check_free(tmp_path, f"file://{home}")


def test_a_directory_is_a_path_or_a_file_url_as_it_is_written() -> None:
    assert local_path("/lake/of%20orders") == Path("/lake/of%20orders")
    assert local_path("file:///lake/of%20orders") == Path("/lake/of%20orders")
    assert local_path("file:/lake/of%20orders") == Path("/lake/of%20orders"), "Hive's form"
    with pytest.raises(ConfigError, match="is no directory: the warehouse must be a local one"):
        local_path("hdfs://lake")
