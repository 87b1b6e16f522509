"""Archives in Azure's object store, by its emulator Azurite; skipped where there is none."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable as Log
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic

from roquet.lake.files import object_staging
from roquet.lake.files.object_staging import ObjectStaging
from roquet.lake.files.output_files import new_file
from roquet.lake.objects.cloud_file_systems import EMULATOR_ADDRESS, azure_file_system
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, StorageFailed, file_system
from roquet.lake.open_table import table_location
from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, open_archive, run
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.materialize import materialize_job

AZURITE = shutil.which("azurite-blob")

pytestmark = [
    pytest.mark.spark_suite,
    # After a removal pyarrow's client loses some answers of Azurite, and asks again 7 s later.
    pytest.mark.timeout(300),
    pytest.mark.skipif(AZURITE is None, reason="no azurite-blob on PATH: tools/install/servers.sh"),
]

HOST = "lake@devstoreaccount1.dfs.core.windows.net"
TABLE = f"abfss://{HOST}/orders"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key that every Azurite has, as its documentation says."""

COUNT = 100


@pytest.fixture(scope="module")
def azurite() -> Iterator[None]:
    """The emulator at its usual port, where both libraries look for it."""
    host, _, port = EMULATOR_ADDRESS.partition(":")
    command = [AZURITE or "", "--blobHost", host, "--blobPort", port, "--inMemoryPersistence"]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with subprocess.Popen(command) as process:
        try:
            for _ in range(300):
                assert process.poll() is None, f"Azurite ended; is port {port} taken?"
                try:
                    socket.create_connection((host, int(port))).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield
        finally:
            process.kill()


@pytest.fixture
def lake(azurite: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The place of the table in an empty container."""
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    place = location()
    files: pafs.FileSystem = file_system(place.url, place.options)
    files.create_dir("lake")
    yield ObjectStore(place)
    files.delete_dir("lake")


def location() -> ObjectLocation:
    place = table_location(TABLE)
    assert isinstance(place, ObjectLocation)
    return place


class Archive:
    """Archives of the topic to one table of the container; tasks run in this process."""

    def __init__(self, topic: PersistentTopic) -> None:
        self.topic = topic
        self.options = {"namesrv": topic.namesrv}

    def params(self, target: str = TABLE) -> Params:
        return Params(topic="orders", target=target, kind="delta", options=self.options)

    def run(self, spark: Any = None, target: str = TABLE) -> ArchiveProgress:
        session: Any = spark or InProcessSpark()
        return run(self.params(target), lambda: session)

    def bodies(self) -> list[bytes]:
        rows = Log(TABLE, storage_options=dict(location().options)).to_pyarrow_table(
            columns=["body"]
        )
        return sorted(rows["body"].to_pylist())


@pytest.fixture
def archive(lake: ObjectStore, orders: PersistentTopic) -> Archive:
    return Archive(orders)


def test_a_topic_becomes_a_table_of_the_container(archive: Archive, lake: ObjectStore) -> None:
    for _ in range(2):
        archive.topic.send(count=COUNT)
        assert archive.run().rows == 4 * COUNT
    assert archive.bodies() == sorted(archive.topic.sent)
    assert lake.files("_roquet/runs") == [], "no run has left a mark"
    audit = audit_job.Params(topic="orders", target=TABLE, options=archive.options)
    report = audit_job.run(audit)
    assert report.is_clean
    assert report.rows == 8 * COUNT


def test_the_latest_of_each_key_is_kept_in_the_container(
    archive: Archive, lake: ObjectStore
) -> None:
    target = f"abfss://{HOST}/latest"
    params = materialize_job.Params(
        topic="orders", target=target, buckets=1, options=archive.options
    )
    spark: Any = InProcessSpark()
    for _ in range(2):
        archive.topic.send(count=COUNT, keys=10)
        assert materialize_job.run(params, lambda: spark).rows == 4 * COUNT
    rows = Log(target, storage_options=dict(location().options)).to_pyarrow_table()
    assert len(set(rows["key"].to_pylist())) == rows.num_rows == 40


def test_of_two_commits_at_the_same_moment_the_container_takes_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.topic.send(count=COUNT)
    archive.run()
    archive.topic.send(count=COUNT)
    write: Callable[..., None] = Log.create_write_transaction

    def write_after_another(log: Log, *args: object, **kwargs: object) -> None:
        monkeypatch.setattr(Log, "create_write_transaction", write)
        assert archive.run().rows == 4 * COUNT
        write(log, *args, **kwargs)

    monkeypatch.setattr(Log, "create_write_transaction", write_after_another)
    with pytest.raises(TableConflict, match="another archive writes to it"):
        archive.run()
    assert archive.bodies() == sorted(archive.topic.sent)


def test_orphans_go_and_the_table_stays(
    archive: Archive, lake: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.topic.send(count=COUNT)
    archive.run()
    before = {file.path for file in lake.files() if file.path.endswith(".parquet")}
    killed = new_file(ObjectStaging(location()).begin(), "2026-01-31")
    killed.stream.write(b"half of a file")
    killed.complete()
    monkeypatch.setattr(object_staging, "ORPHAN_MS", -60_000)
    monkeypatch.setattr(object_staging, "MARK_MS_MAX", -60_000)
    with open_archive(archive.params()):
        left = {file.path for file in lake.files() if file.path.endswith(".parquet")}
    assert left == before


def test_a_container_that_is_not_there_is_named(archive: Archive) -> None:
    target = TABLE.replace("lake@", "sea@")
    with pytest.raises(ConfigError, match="there is no container 'sea' at Azure account devst"):
        archive.run(target=target)


def test_a_path_with_files_of_others_is_left_alone(archive: Archive, lake: ObjectStore) -> None:
    lake.put("theirs.csv", b"1,2")
    with pytest.raises(ConfigError, match="is not empty and no archive"):
        archive.run()


def test_a_wrong_key_is_a_sentence(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY.replace("E", "F", 1))
    azure_file_system.cache_clear()
    with pytest.raises(StorageFailed, match=r"refuses access to abfss://lake@.* check AZURE_STORA"):
        archive.run()
    azure_file_system.cache_clear()
