"""Directories in which Apache's broker keeps tables in RocksDB are refused, and left alone."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.store.conftest import DataDir, fill

from roquet.model.errors import StoreError
from roquet.store.backup.contents import check_is_store
from roquet.store.check import check
from roquet.store.config import StoreConfig
from roquet.store.store import Store

NOW = 1_795_250_000_000
DATABASES = (
    "config/topics",
    "config/subscriptionGroups",
    "config/consumerOffsets",
    "config/metadata",
    "config/rdb",
    "kvStore",
    "consumequeue",
    "consumequeue_rocksdb",
)


@pytest.mark.parametrize("name", DATABASES)
def test_a_directory_with_tables_in_rocksdb_is_refused_by_name_and_left_alone(
    store_dir: DataDir, store: Store, name: str
) -> None:
    fill(store, 3)
    store.close(NOW)
    store_dir.files.replace(store_dir.path(f"{name}/CURRENT"), b"MANIFEST-000005\n")
    before = store_dir.snapshot()
    with pytest.raises(StoreError, match=rf"tables in RocksDB \({name}/\): .*storeType=default"):
        store_dir.open()
    with pytest.raises(StoreError, match="rocksDBConfigToJson"):
        check(store_dir.directory, store_dir.config, files=store_dir.files)
    assert store_dir.snapshot() == before


def test_a_backup_of_a_directory_on_rocksdb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "kvStore").mkdir()
    (tmp_path / "kvStore" / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(StoreError, match="kvStore/"):
        check_is_store(tmp_path)


def test_all_databases_are_named_in_one_sentence(tmp_path: Path) -> None:
    for name in DATABASES:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(StoreError) as error:
        Store.open(tmp_path, now_ms=NOW, pid=1)
    assert all(f"{name}/" in str(error.value) for name in DATABASES)


@pytest.mark.parametrize(("name", "size"), [("000012.log", 0), ("MANIFEST-000013", 255)])
def test_the_empty_database_of_every_apache_broker_does_not_count(
    tmp_path: Path, name: str, size: int
) -> None:
    _fill_rocksdbstore(tmp_path, name, size)
    Store.open(tmp_path, now_ms=NOW, pid=1).close(NOW)


@pytest.mark.parametrize("name", ["000012.log", "000013.sst"])
def test_that_database_with_timers_or_half_messages_in_it_counts(tmp_path: Path, name: str) -> None:
    _fill_rocksdbstore(tmp_path, name, 1305)
    with pytest.raises(StoreError, match="rocksdbstore/"):
        Store.open(tmp_path, now_ms=NOW, pid=1)


def _fill_rocksdbstore(directory: Path, name: str, size: int) -> None:
    (directory / "rocksdbstore").mkdir()
    (directory / "rocksdbstore" / "CURRENT").write_text("MANIFEST-000013\n")
    (directory / "rocksdbstore" / name).write_bytes(bytes(size))


@pytest.mark.parametrize("name", ["users", "acls"])
def test_databases_of_users_and_policies_are_no_reason_to_refuse(tmp_path: Path, name: str) -> None:
    (tmp_path / "config" / name).mkdir(parents=True)
    (tmp_path / "config" / name / "CURRENT").write_text("MANIFEST-000005\n")
    Store.open(tmp_path, now_ms=NOW, pid=1).close(NOW)


def test_a_topic_of_any_name_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "CURRENT" / "0").mkdir(parents=True)
    (tmp_path / "kvStore").mkdir()
    (tmp_path / "kvStore" / "CURRENT").write_text("none of RocksDB's\n")
    Store.open(tmp_path, now_ms=NOW, pid=1).close(NOW)


def test_a_database_that_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kvStore").mkdir()
    (tmp_path / "kvStore" / "CURRENT").symlink_to("CURRENT")
    with pytest.raises(StoreError, match="CURRENT cannot be used"):
        Store.open(tmp_path, now_ms=NOW, pid=1)


SETTINGS = ("storeType=defaultRocksDB", "configManagerVersion=v2")


def test_settings_of_rocksdb_are_refused_over_messages_of_an_apache_broker(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 3)
    store.close(NOW)
    # Apache's broker writes other times into the first bytes, and our note counts no more.
    store_dir.files.write(store_dir.path("checkpoint"), 0, b"\x00\x00\x00\x01" * 6)
    settings = StoreConfig(rocksdb_settings=SETTINGS)
    with pytest.raises(StoreError, match=r"\(storeType=defaultRocksDB, configManagerVersion=v2\)"):
        Store.open(store_dir.directory, settings, files=store_dir.files, now_ms=NOW, pid=1)


def test_settings_of_rocksdb_do_not_matter_where_roquet_wrote_or_nobody_did(
    store_dir: DataDir,
) -> None:
    store_dir.config = replace(store_dir.config, rocksdb_settings=SETTINGS)
    for _ in range(2):
        store = store_dir.open()
        fill(store, 3)
        store.close(NOW)
