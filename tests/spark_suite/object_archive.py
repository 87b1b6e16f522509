"""Archives in object stores: an S3 server, Azurite and fake-gcs-server, each with an empty bucket.

A proxy of these tests is in front of fake-gcs-server (`tests.lake.google_proxy`). It adds what the
server lacks of the API that deltalake asks for: uploads in one request, their condition,
`start-after` of lists, and 404 for a bucket that is not there. The server itself decides about
conditions. Tests import from this plugin before pytest does: PYTEST_DONT_REWRITE.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable as Log
from pyiceberg.table import Table as IceTable
from tests.lake.conftest import location_of
from tests.lake.fault_proxy import FaultProxy, fault_proxy
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic

from harness.ports import free_port
from roquet.lake.audit.audit_report import AuditReport
from roquet.lake.kinds.delta import conditional_puts
from roquet.lake.kinds.delta.storage import log_options
from roquet.lake.kinds.iceberg import catalog_of
from roquet.lake.objects.cloud_file_systems import EMULATOR_ADDRESS, google_file_system
from roquet.lake.objects.object_store import ObjectStore, file_system
from roquet.lake.open_table import table_location
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, run
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.materialize import materialize_job
from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress
from roquet.spark.jobs.replay import replay_job, replay_plan

COUNT = 100
"""Messages sent to each of four queues at a time."""

HOST = "lake@devstoreaccount1.dfs.core.windows.net"
TABLES = {"s3": "s3://lake/orders", "google": "gs://lake/orders", "azure": f"abfss://{HOST}/orders"}
"""The table of each store."""

AZURITE, GCS = shutil.which("azurite-blob"), shutil.which("fake-gcs-server")

needs_google = pytest.mark.skipif(
    GCS is None, reason="no fake-gcs-server on PATH: tools/install/servers.sh"
)
needs_azure = (
    # After a removal pyarrow's client loses some answers of Azurite, and asks again 7 s later.
    pytest.mark.timeout(300),
    pytest.mark.skipif(AZURITE is None, reason="no azurite-blob on PATH: tools/install/servers.sh"),
)

DELTA = pytest.param(("s3", "delta"), id="delta")
ICEBERG = pytest.param(("s3", "iceberg"), id="iceberg")
CLOUDS = (
    pytest.param(("google", "delta"), marks=needs_google, id="google"),
    pytest.param(("azure", "delta"), marks=needs_azure, id="azure"),
)
as_iceberg = pytest.mark.parametrize("archive", [ICEBERG], indirect=True)
of_each_kind = pytest.mark.parametrize("archive", [DELTA, ICEBERG], indirect=True)
in_each_store = pytest.mark.parametrize("archive", [DELTA, *CLOUDS], indirect=True)
everywhere = pytest.mark.parametrize("archive", [DELTA, ICEBERG, *CLOUDS], indirect=True)
in_google = pytest.mark.parametrize("archive", CLOUDS[:1], indirect=True)
in_azure = pytest.mark.parametrize("archive", CLOUDS[1:], indirect=True)
"""Archives that a test is about; a Delta table in S3 without one of these."""

AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key of the account that every Azurite has, as its documentation says."""


class Archive:
    """Archives of the topic to one table of a store; tasks run in this process."""

    def __init__(
        self, topic: PersistentTopic, table: str, kind: str, catalog: Mapping[str, str]
    ) -> None:
        self.topic, self.table, self.kind, self.catalog = topic, table, kind, catalog
        self.options = {"namesrv": topic.namesrv}

    def params(self, **params: Any) -> Params:
        options = {**self.options, "minPartitions": "2", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": self.table, "options": options}
        return Params(**{**arguments, "kind": self.kind, "catalog": self.catalog, **params})

    def run(self, spark: Any = None, **params: Any) -> ArchiveProgress:
        session: Any = spark or InProcessSpark()
        return run(self.params(**params), lambda: session)

    def send_and_run(self, spark: Any = None, **params: Any) -> None:
        """Archive new messages."""
        self.topic.send(count=COUNT)
        assert self.run(spark, **params).rows == 4 * COUNT

    def beside(self, name: str) -> str:
        """Another URL in the bucket."""
        return self.table.replace("/orders", f"/{name}")

    def audit(self, **params: Any) -> AuditReport:
        arguments: dict[str, Any] = {"target": self.table, "options": self.options}
        return audit_job.run(
            audit_job.Params(topic="orders", catalog=self.catalog, **{**arguments, **params})
        )

    def replay(self, **params: Any) -> int:
        """Send the rows to the topic again; how many were sent."""
        spark: Any = InProcessSpark
        arguments: dict[str, Any] = {"source": self.table, "topic": "orders", "same_topic": True}
        arguments |= {"options": self.options, "catalog": self.catalog, **params}
        return replay_job.run(replay_plan.Params(**arguments), spark).rows

    def materialize(self, target: str, **params: Any) -> MaterializeProgress:
        spark: Any = InProcessSpark()
        arguments: dict[str, Any] = {"topic": "orders", "target": target, "buckets": 2}
        arguments |= {"options": {**self.options, "minPartitions": "2"}, **params}
        return materialize_job.run(materialize_job.Params(**arguments), lambda: spark)

    @property
    def home(self) -> str:
        """The URL of the directory with the days."""
        return self.table if self.kind == "delta" else f"{self.table}/roquet/orders/data"

    @property
    def store(self) -> ObjectStore:
        """The objects below the home."""
        return ObjectStore(location_of(self.home))

    def files(self, directory: str = "") -> list[str]:
        """The paths of the objects below the home, sorted."""
        return sorted(file.path for file in self.store.files(directory))

    def log(self, url: str = "", version: int | None = None) -> Log:
        """The Delta table as others open it."""
        place = location_of(url or self.table)
        return Log(place.url, version=version, storage_options=log_options(place))

    def bodies(self) -> list[bytes]:
        """The bodies that anybody else reads from the table, sorted."""
        if self.kind == "delta":
            rows = self.log().to_pyarrow_table(columns=["body"])
        else:
            with self.opened() as table:
                rows = table.scan().to_arrow()
        return sorted(rows["body"].to_pylist())

    def old_rows(self) -> int:
        """The rows of an older version, whose files have been merged since."""
        if self.kind == "delta":
            self.log().create_checkpoint()
            return int(self.log(version=2).to_pyarrow_table().num_rows)
        with self.opened() as table:
            return len(table.scan(snapshot_id=table.snapshots()[1].snapshot_id).to_arrow())

    @contextmanager
    def opened(self) -> Iterator[IceTable]:
        """The Iceberg table as others open it."""
        with closing(catalog_of(table_location(self.table), self.catalog)) as catalog:
            yield catalog.load_table("roquet.orders")


@contextmanager
def server(command: list[str], port: int) -> Iterator[None]:
    """A process that answers at a port of this machine, until the block ends."""
    with subprocess.Popen(command) as process:
        try:
            for _ in range(300):
                assert process.poll() is None, f"{command[0]} ended; is port {port} taken?"
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def azurite() -> Iterator[None]:
    """The emulator at its usual port, where both libraries look for it."""
    host, _, port = EMULATOR_ADDRESS.partition(":")
    command = [AZURITE or "", "--blobHost", host, "--blobPort", port, "--inMemoryPersistence"]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with server(command, int(port)):
        yield


@pytest.fixture
def azure(azurite: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty container."""
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
    place = location_of(TABLES["azure"])
    files: pafs.FileSystem = file_system(place.url, place.options)
    files.create_dir("lake")
    yield
    files.delete_dir("lake")


@pytest.fixture(scope="module")
def google_server() -> Iterator[FaultProxy]:
    """The server with the bucket `lake`, by way of the proxy."""
    port = free_port()
    command = [GCS or "", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", "127.0.0.1", "-backend", "memory", "-log-level", "error"]
    with server(command, port):
        bucket: Any = {"scheme": "http", "endpoint_override": f"127.0.0.1:{port}"}
        pafs.GcsFileSystem(anonymous=True, project_id="tests", **bucket).create_dir("lake")
        with fault_proxy(f"http://127.0.0.1:{port}", "tests.lake.google_proxy") as proxy:
            yield proxy


@pytest.fixture
def google(google_server: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The proxy of an empty bucket."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google_server.url)
    conditional_puts.check_server.cache_clear()
    options = location_of(TABLES["google"]).options
    files: pafs.FileSystem = google_file_system(tuple(options.items()))
    yield google_server
    google_server.clear()
    for info in files.get_file_info(pafs.FileSelector("lake", recursive=True)):
        files.delete_file(info.path)


@pytest.fixture(params=[DELTA])
def archive(request: pytest.FixtureRequest, orders: PersistentTopic, tmp_path: Path) -> Archive:
    """An archive of a store and a kind; by default a Delta table in S3."""
    store, kind = request.param
    request.getfixturevalue(store)
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    return Archive(orders, TABLES[store], kind, sql if kind == "iceberg" else {})
