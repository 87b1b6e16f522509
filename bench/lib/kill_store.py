"""An archive in an S3 server under kills: each message in the table once, and no orphan stays.

The server is moto's, a process of its own. It keeps objects in memory alone, so it is not killed
but stopped for some seconds: requests hang, time out and are repeated.
"""

import os
import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.lib.kill_archive import TOPIC, Archive
from bench.lib.kill_stage import Stage
from harness.ports import free_port
from harness.processes import Process

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable

    from roquet.lake.table import ArchiveTable

ICEBERG = "iceberg"

STORE = "store"
"""The victim that is stopped and goes on."""

BUCKET = "lake"
STOPPED_S = (0.5, 5.0)
SLOW_S = 60
"""Longest wait of these looks at the server, which is stopped at times, on a busy machine."""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAKILLSPARK",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class ObjectServer:
    """An S3 server with a bucket; the environment of this process and its children names it."""

    READY = "Running on"

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ |= {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
        self._server = Process(self._command(port, folder), folder / "store.log", ready=self.READY)
        self._server.start()
        self.files = self._file_system()
        self.files.create_dir(BUCKET)

    def _command(self, port: int, folder: Path) -> list[str]:  # noqa: ARG002
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    @property
    def pid(self) -> int:
        return self._server.pid

    def _file_system(self) -> Any:
        import pyarrow.fs as pafs

        return pafs.S3FileSystem(
            scheme="http",
            endpoint_override=self.url.removeprefix("http://"),
            region="us-east-1",
            allow_bucket_creation=True,
            request_timeout=SLOW_S,
            connect_timeout=SLOW_S,
        )

    def list_objects(self, path: str) -> dict[str, float]:
        """The keys of the objects below a path, and when each was uploaded, in s since 1970."""
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(f"{BUCKET}/{path}", recursive=True, allow_not_found=True)
        found = self.files.get_file_info(selector)
        return {one.path: one.mtime_ns / 1e9 for one in found if one.type == pafs.FileType.File}

    def freeze(self) -> None:
        """Stop the server for some seconds."""
        self._server.freeze()
        try:
            time.sleep(random.uniform(*STOPPED_S))
        finally:
            self._server.thaw()

    def close(self) -> None:
        self._server.kill()


class ObjectArchive(Archive):
    """One round: the topic into a new Delta table of the server."""

    def __init__(
        self, stage: Stage, server: ObjectServer, kind: str, number: int, messages: int
    ) -> None:
        super().__init__(stage, kind, number, messages)
        self._server = server
        self._path = f"{kind}-{number}"
        self.target = f"s3://{BUCKET}/{self._path}"
        self._known = set[str]()

    def start(self) -> Process:
        self._known = self._files()
        return super().start()

    def moment(self, driver: Process, deadline: float) -> float | None:
        """Behind the moment in which a run of ours has uploaded its first file."""
        while driver.is_running and time.monotonic() < deadline:
            if self._files() - self._known:
                return random.uniform(0.0, 3.0)
            time.sleep(0.2)
        return None

    def _files(self) -> set[str]:
        return {key for key in self._server.list_objects(self._path) if key.endswith(".parquet")}

    def judge(self) -> str:
        """Each message once, at its place; after the grace period no file that no version names."""
        rows = self._rows()
        self.compare(rows)
        left = self._files() - self._named()
        removed = self._clean()
        if orphans := left & self._files():
            raise AssertionError(f"{len(orphans)} orphan files: {sorted(orphans)[:3]}")
        marks = [key for key in self._server.list_objects(self._path) if "/_roquet/runs/" in key]
        if marks:
            raise AssertionError(f"left behind: {marks}")
        count = f"{rows.num_rows:,} rows of {self.messages:,} messages"
        return f"{count}, each once; {len(self._files())} files, {removed} orphans removed"

    def _rows(self) -> pa.Table:
        """The rows that readers of others see."""
        from deltalake import DeltaTable

        return pa.table(DeltaTable(self.target).to_pyarrow_table(columns=self.columns))

    def _named(self) -> set[str]:
        """The keys of the files that any version of the table names."""
        found = set[str]()
        for key in self._server.list_objects(f"{self._path}/_delta_log"):
            if re.search(r"/\d{20}\.json$", key):
                with self._server.files.open_input_stream(key) as entry:
                    names = re.findall(r'"add":\{"path":"([^"]+)"', entry.read().decode())
                found |= {f"{BUCKET}/{self._path}/{name}" for name in names}
        return found

    def _clean(self) -> int:
        """Remove orphans as if the grace period were over; returns how many."""
        from roquet.lake.files import object_staging

        periods = object_staging.ORPHAN_MS, object_staging.MARK_MS_MAX
        with self.opened() as table:
            try:
                object_staging.ORPHAN_MS = object_staging.MARK_MS_MAX = -60_000  # type: ignore[misc]
                return table.clean()
            finally:
                object_staging.ORPHAN_MS, object_staging.MARK_MS_MAX = periods  # type: ignore[misc]

    def opened(self) -> "ArchiveTable":
        """The table as its job opens it."""
        from roquet.lake.open_table import open_table
        from roquet.lake.table import ArchiveIdentity

        return open_table("delta", self.target, ArchiveIdentity(topic=TOPIC, columns=()))


class ObjectIceberg(ObjectArchive):
    """One round: the topic into a new Iceberg table of the server, whose catalog is SQLite."""

    def options(self) -> list[str]:
        return [*super().options(), "--catalog", self._catalog()["uri"]]

    def _catalog(self) -> dict[str, str]:
        return {"uri": f"sqlite:///{self._stage.folder}/{self._path}.db"}

    def _loaded(self) -> "IceTable":
        """The table as readers of others open it."""
        from roquet.lake.kinds.iceberg import catalog_of
        from roquet.lake.open_table import table_location

        catalog = catalog_of(table_location(self.target), self._catalog())
        return catalog.load_table(f"roquet.{TOPIC}")

    def _rows(self) -> pa.Table:
        return self._loaded().scan(selected_fields=tuple(self.columns)).to_arrow()

    def _named(self) -> set[str]:
        """Those that any metadata names: a run that is killed in its commit may leave some."""
        from roquet.lake.kinds.iceberg.named_files import named_files
        from roquet.lake.kinds.iceberg.table_place import object_home
        from roquet.lake.open_table import table_location

        table, root = self._loaded(), table_location(self.target)
        assert not isinstance(root, Path)
        urls = named_files(table, object_home(root, table.location()))
        return {url.removeprefix("s3://") for url in urls}

    def opened(self) -> "ArchiveTable":
        from roquet.lake.open_table import open_table
        from roquet.lake.table import ArchiveIdentity

        identity = ArchiveIdentity(topic=TOPIC, columns=())
        return open_table(self._kind, self.target, identity, catalog=self._catalog())
