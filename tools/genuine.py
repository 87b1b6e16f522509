"""Apache RocketMQ beside ours: fetched through Maven, started on free ports, stopped at the end.

Used by the interoperability tests and the benchmarks; nothing of it is part of the product.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "5.5.0"
CACHE: Final = Path(os.environ.get("ROQUET_CACHE") or Path.home() / ".cache" / "roquet")
START_SECONDS_MAX: Final = 90
"""A cold JVM on a busy machine of two cores takes about ten seconds."""
STOP_SECONDS_MAX: Final = 30
REGISTERED: Final = "Registering current broker to name server completed"
"""A log line of the genuine broker: a name server knows it."""

_ARTIFACTS: Final = ("broker", "namesrv", "tools", "example")
_JVM: Final = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)


def missing() -> str | None:
    """One line that names what this machine lacks to run it; None when it lacks nothing."""
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            return f"no {command!r} on PATH: Apache RocketMQ {VERSION} cannot be run beside ours"
    return None


def jars() -> Path:
    """The folder of the genuine jars; fetched on first use."""
    return fetched(f"genuine-{VERSION}", _rocketmq(VERSION, _ARTIFACTS))


def client_jars(version: str) -> Path:
    """The folder of the jars of a genuine Java client; fetched on first use."""
    if version == VERSION:
        return jars()
    return fetched(f"java-client-{version}", _rocketmq(version, ("client",)))


def _rocketmq(version: str, artifacts: Sequence[str]) -> list[str]:
    return [f"org.apache.rocketmq:rocketmq-{name}:{version}" for name in artifacts]


ALONE: Final = ("*:*",)
"""Value of `without` that leaves out all needed jars."""


def fetched(name: str, coordinates: Sequence[str], *, without: Sequence[str] = ()) -> Path:
    """A folder of jars, `group:artifact:version` each, with those that they need.

    Needed jars that are named in `without`, `group:artifact` each, are left out.
    """
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _fetch(folder, coordinates, without)
    return folder / "lib"


def _fetch(folder: Path, coordinates: Sequence[str], without: Sequence[str]) -> None:
    excluded = "".join(
        "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(
            *name.split(":")
        )
        for name in without
    )
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "<exclusions>{}</exclusions></dependency>".format(*coordinate.split(":"), excluded)
        for coordinate in coordinates
    )
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>beside</groupId><artifactId>genuine</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    (folder / "complete").touch()


NEARBY: Final = (-2, 1, 2)
"""From a server's port to others that it listens on: a broker's second one, that for replicas, and
pages of metrics."""


def free_port() -> int:
    """A port that was free a moment ago, as those nearby were.

    A port of a client's connection stays taken for a minute after its end.
    """
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if all(_is_free(port + step) for step in NEARBY):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def java(main: str, *args: str, heap: str = "512m", options: Sequence[str] = ()) -> list[str]:
    """The command line of a genuine class; `options` are Java's own, such as `-Dkey=value`."""
    memory = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=1g"]
    return [
        "java",
        *memory,
        *_JVM,
        *options,
        "-cp",
        f"{jars()}/*",
        f"org.apache.rocketmq.{main}",
        *args,
    ]


@contextlib.contextmanager
def process(command: Sequence[str], home: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in a file; asked to stop at the end, then made to."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "ROCKETMQ_HOME": str(home), "HOME": str(home)}
    environment["JAVA_TOOL_OPTIONS"] = f"-Duser.home={home}"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            list(command), stdout=sink, stderr=subprocess.STDOUT, env=environment
        )
        try:
            yield child
        finally:
            stop(child)


def stop(child: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and SIGKILL when that is not heard."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def wait_for(log: Path, text: str, child: "subprocess.Popen[bytes]") -> None:
    """Until the log holds a text; an error with the log's end when it never does."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if log.exists() and text in log.read_text(errors="replace"):
            return
        if child.poll() is not None:
            break
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{' '.join(child.args[-2:])} did not start: {tail}")  # type: ignore[index,arg-type]


class Genuine:
    """A running name server and broker of Apache RocketMQ."""

    def __init__(self, namesrv: str, broker: str, pid: int, store: Path) -> None:
        self.namesrv = namesrv
        self.broker = broker
        self.pid = pid
        self.store = store


@contextlib.contextmanager
def cluster(folder: Path, *, options: Sequence[str] = (), **settings: str) -> Iterator[Genuine]:
    """A genuine name server and broker in a folder, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    namesrv_port, broker_port = free_port(), free_port()
    namesrv = f"127.0.0.1:{namesrv_port}"
    (folder / "namesrv.conf").write_text(f"listenPort={namesrv_port}\n")
    config = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "genuine-a",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(broker_port),
        "haListenPort": str(free_port()),
        "namesrvAddr": namesrv,
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        "autoCreateTopicEnable": "true",
        "enablePropertyFilter": "true",
        **settings,
    }
    (folder / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in config.items()))
    namesrv_command = java(
        "namesrv.NamesrvStartup", "-c", str(folder / "namesrv.conf"), options=options
    )
    broker_command = java(
        "broker.BrokerStartup", "-c", str(folder / "broker.conf"), heap="1g", options=options
    )
    with (
        process(namesrv_command, folder / "home-n", folder / "namesrv.log") as first,
        contextlib.ExitStack() as stack,
    ):
        wait_for(folder / "namesrv.log", "boot success", first)
        second = stack.enter_context(
            process(broker_command, folder / "home-b", folder / "broker.log")
        )
        wait_for(folder / "broker.log", "boot success", second)
        # It also says so when its first registration failed; it tries again ten seconds later.
        told = folder / "home-b" / "logs" / "rocketmqlogs" / "broker.log"
        wait_for(told, REGISTERED, second)
        yield Genuine(namesrv, f"127.0.0.1:{broker_port}", second.pid, folder / "store")


def run(command: list[str], *, seconds: float, home: Path) -> str:
    """The output of a foreign client; its exit code does not count, since its exit may crash."""
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=seconds, env=environment
    )
    with contextlib.suppress(OSError):
        (home / "stderr").write_text(done.stderr)
    return done.stdout
