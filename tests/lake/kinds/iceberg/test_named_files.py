"""Orphans of Iceberg tables in an object store: none of them is a file that metadata names."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import Table
from tests.lake.conftest import (
    QUEUES,
    WANTED,
    archive,
    batch,
    location_of,
    merge,
    places,
    whole,
    written,
)

from roquet.lake.files import object_staging
from roquet.lake.kinds.iceberg import IcebergTable, catalog_of
from roquet.lake.kinds.iceberg.named_files import named_files
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.table import TableDamaged
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server

pytestmark = pytest.mark.spark_suite

ROOT = "s3://lake/ice"
HOME = f"{ROOT}/roquet/orders"


class Lake:
    """An archive as an Iceberg table of the server, in catalogs of this machine."""

    def __init__(self, folder: Path, s3: "S3Server") -> None:
        self.folder, self.s3 = folder, s3

    def catalog(self, name: str = "catalog") -> dict[str, str]:
        return {"uri": f"sqlite:///{self.folder}/{name}.db"}

    def open(self, name: str = "catalog") -> IcebergTable:
        return IcebergTable(location_of(ROOT), WANTED, catalog=self.catalog(name))

    @contextmanager
    def loaded(self, name: str = "catalog") -> Iterator[Table]:
        """The table as its catalog has it."""
        with catalog_of(location_of(ROOT), self.catalog(name)) as catalog:
            yield catalog.load_table("roquet.orders")

    @property
    def store(self) -> ObjectStore:
        """The objects below the table."""
        return ObjectStore(location_of(HOME))

    def files(self) -> set[str]:
        """The names of all data files in the store."""
        return {key.rpartition("/")[2] for key in self.s3.stored() if key.endswith(".parquet")}

    def leave_orphan(self) -> str:
        """A file of a run that was killed before its commit; its name."""
        with self.open() as table:
            state = table.state(QUEUES)
            [file] = written(table.begin(), batch(range(3)))
            assert state.number, "an attempt that is not committed leaves the mark of its run"
        return file.name


@pytest.fixture
def lake(s3: "S3Server", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table with one commit; every file is old enough to be an orphan."""
    made = Lake(tmp_path, s3)
    with made.open() as table:
        archive(table, 0, 5)
    monkeypatch.setattr(object_staging, "ORPHAN_MS", -60_000)
    return made


def test_files_of_killed_runs_go_and_those_of_all_snapshots_stay(lake: Lake) -> None:
    with lake.open() as table:
        archive(table, 5, 9)
        state, old = table.state(QUEUES), table.files()
        attempt = table.begin()
        [merged], [repeated] = (written(attempt, batch(range(9))) for _ in range(2))
        table.commit(state.then(state.offsets, attempt.name, [merged], old[:1]))
    named = lake.files() - {repeated.name}
    orphan = lake.leave_orphan()
    assert orphan in lake.files()
    with lake.open() as table:
        assert table.clean() == 2
    assert lake.files() == named


def test_a_run_removes_what_a_killed_one_has_left(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = lake.leave_orphan()
    lake.open().close()
    assert orphan in lake.files(), "the mark of its run is young"
    monkeypatch.setattr(object_staging, "MARK_MS_MAX", -60_000)
    lake.open().close()
    assert orphan not in lake.files()


def test_files_that_another_catalog_names_stay(lake: Lake) -> None:
    """It has taken the table over, and goes on from there."""
    with lake.loaded() as table:
        where = table.metadata_location
    with catalog_of(location_of(ROOT), lake.catalog("other")) as other:
        other.create_namespace("roquet")
        other.register_table("roquet.orders", where)
    with lake.open("other") as table:
        archive(table, 5, 9)
    orphan, before = lake.leave_orphan(), lake.files()
    with lake.open() as table:
        archive(table, 5, 7)
        assert table.clean() == 1
    assert lake.files() >= before - {orphan}
    with lake.loaded("other") as loaded:
        assert places(loaded.scan().to_arrow()) == whole(9)
    with lake.loaded() as loaded:
        assert places(loaded.scan().to_arrow()) == whole(7)


def test_files_that_another_catalog_names_in_past_metadata_stay(lake: Lake) -> None:
    """Its version is a past one here, whose snapshot was expired without its files."""
    with lake.loaded() as table:
        where = table.metadata_location
        [first] = table.snapshots()
    with catalog_of(location_of(ROOT), lake.catalog("other")) as other:
        other.create_namespace("roquet")
        other.register_table("roquet.orders", where)
    with lake.open() as table:
        merge(table, 5, table.files())
    with lake.loaded() as loaded:
        loaded.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
        assert any(entry.metadata_file == where for entry in loaded.refresh().metadata.metadata_log)
    before = lake.files()
    with lake.open() as table:
        assert table.clean() == 0
    assert lake.files() == before
    with lake.loaded("other") as loaded:
        assert places(loaded.scan().to_arrow()) == whole(5)


def test_files_stay_that_a_catalog_from_a_backup_does_not_know(lake: Lake) -> None:
    database = lake.folder / "catalog.db"
    shutil.copy(database, lake.folder / "backup.db")
    with lake.open() as table:
        archive(table, 5, 9)
    before = lake.files()
    shutil.copy(lake.folder / "backup.db", database)
    with lake.open() as table:
        assert table.clean() == 0
    assert lake.files() == before


def test_a_change_that_was_refused_keeps_no_orphan(lake: Lake) -> None:
    """Its metadata file may be there still; the snapshot that it names has no files any more."""
    with lake.loaded() as table:
        metadata = lake.store.files("metadata")
        [snapshot] = table.snapshots()
        gone = {"snapshot_id": 7, "manifest_list": f"{HOME}/metadata/gone.avro"}
        newest = table.metadata.model_copy(update={"snapshots": [snapshot.model_copy(update=gone)]})
        lake.store.put("metadata/00009-x.metadata.json", newest.model_dump_json().encode())
        assert len(lake.store.files("metadata")) == len(metadata) + 1
        assert {
            url.rpartition("/")[2] for url in named_files(table, lake.store.location)
        } == lake.files()


def test_metadata_that_a_commit_removes_meanwhile_is_no_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives keep a hundred metadata files, and each commit removes the oldest one."""
    lake.store.put("metadata/00000-x.metadata.json", b"{")
    listed = lake.store.files("metadata")
    lake.store.remove("metadata/00000-x.metadata.json")
    monkeypatch.setattr(ObjectStore, "files", lambda *_: listed)
    with lake.loaded() as table:
        named = named_files(table, lake.store.location)
    assert {url.rpartition("/")[2] for url in named} == lake.files()


def test_metadata_that_cannot_be_read_keeps_every_file(lake: Lake) -> None:
    orphan = lake.leave_orphan()
    lake.store.put("metadata/00009-x.metadata.json", b"{")
    with lake.open() as table, pytest.raises(TableDamaged, match="so no file was removed: move it"):
        table.clean()
    assert orphan in lake.files()


def test_metadata_that_lies_elsewhere_keeps_every_file(lake: Lake) -> None:
    with lake.loaded() as loaded, loaded.transaction() as change:
        change.set_properties({"write.metadata.path": f"{ROOT}/elsewhere"})
    with lake.loaded() as loaded, loaded.transaction() as change:
        change.set_properties({"a": "b"})
    orphan = lake.leave_orphan()
    with lake.open() as table, pytest.raises(ConfigError, match="lies elsewhere, so nothing says"):
        table.clean()
    assert orphan in lake.files()
