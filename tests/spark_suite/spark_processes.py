"""Spark's own servers as processes of a test: a standalone master, its workers, Spark Connect."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyspark

from roquet.spark.java import java_home

SOURCES = Path(__file__).parents[2] / "src"
SPARK_HOME = Path(pyspark.__file__).parent

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The second compiler and the parallel collector cost more than they save in tests."""

PATIENCE_S = 180
"""For what takes a few seconds, on a machine that has other work."""

DEFAULTS = f"""\
spark.driver.memory              512m
spark.executor.memory            512m
spark.ui.enabled                 false
spark.decommission.enabled       true
spark.driver.extraJavaOptions    {JAVA_OPTIONS}
spark.executor.extraJavaOptions  {JAVA_OPTIONS}
"""

MASTER = re.compile(r"spark://127\.0\.0\.1:\d+")


def spark_environment(root: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables of a Spark process whose directories are below `root`."""
    conf = root / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    own = {
        "JAVA_HOME": str(java_home(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(SOURCES),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(root / "scratch"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {**kept, **own, **(more or {})}


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not holds():
        assert time.perf_counter() < deadline, what
        time.sleep(0.05)


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process has started, and those that these have, with their commands."""
    parents, commands = dict[int, int](), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            stat = (folder / "stat").read_text()
            commands[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: commands[child] for child in sorted(found - {pid})}


class SparkProcess:
    """A running Java of Spark's, with its log in a file."""

    def __init__(self, root: Path, arguments: list[str], environ: Mapping[str, str]) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, self._log = root, root / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                arguments, env=environ, cwd=root, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def await_line(self, pattern: re.Pattern[str]) -> str:
        until(
            lambda: pattern.search(self.log) or self._process.poll() is not None,
            "a line of the log",
        )
        found = pattern.search(self.log)
        assert found is not None, self.log[-2000:]
        return found[0]

    def executors(self) -> list[int]:
        below = descendants(self._process.pid)
        return [pid for pid, command in below.items() if "CoarseGrainedExecutor" in command]

    def decommission(self) -> None:
        """Tell a worker that its machine goes away: its tasks may end, and it gets no others."""
        self._process.send_signal(signal.SIGPWR)

    def kill(self) -> None:
        """End it as a machine does that loses its power: with all that it has started."""
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class StandaloneCluster:
    """A master, and workers whose directories are their own."""

    cores = 3
    """Cores that each worker offers: all together are not those of any machine this runs on."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root, self._environ = root, environ
        self.workers: list[SparkProcess] = []
        self._master = self._start("master", "master.Master", "--port", "0")
        self.url = self._master.await_line(MASTER)

    def add_worker(self) -> SparkProcess:
        name = f"worker-{len(self.workers)}"
        worker = self._start(
            name, "worker.Worker", "--cores", str(self.cores), "--memory", "1g",
            "--work-dir", str(self.root / name / "work"), self.url,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def applications(self, worker: SparkProcess) -> list[Path]:
        """The directories of executors that a worker has started."""
        return sorted((worker.root / "work").glob("app-*/*"))

    def driver_environment(self) -> dict[str, str]:
        return spark_environment(self.root / "driver", self._environ)

    def close(self) -> None:
        for process in [*self.workers, self._master]:
            process.kill()

    def _start(self, name: str, kind: str, *arguments: str) -> SparkProcess:
        root = self.root / name
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        places = ["--host", "127.0.0.1", "--webui-port", "0"]
        environ = spark_environment(root, self._environ)
        return SparkProcess(root, [*command, *places, *arguments], environ)


@contextmanager
def standalone_cluster(root: Path, environ: Mapping[str, str]) -> Iterator[StandaloneCluster]:
    """A cluster of two workers; all of its processes end with the block."""
    cluster = StandaloneCluster(root, environ)
    try:
        for _ in range(2):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.close()


@contextmanager
def connect_server(root: Path, cores: int) -> Iterator[str]:
    """A server of Spark Connect on this machine; gives its URL and ends with the block."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", f"local[{cores}]",
        *(f"--conf={name}={value}" for name, value in settings.items()),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]  # fmt: skip
    memory = {"SPARK_DAEMON_MEMORY": "512m"}  # it is a driver as well
    server = SparkProcess(root, command, spark_environment(root, memory))
    try:
        server.await_line(re.compile("Spark Connect server started"))
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
