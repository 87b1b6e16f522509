"""Apache Kafka and Spark's Kafka source beside ours: fetched, started on free ports, stopped.

Used by the benchmarks alone; nothing of it is part of the product. Spark's source is not published
for the Spark that we use, so it runs on the version before, in an environment of its own.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import genuine

VERSION: Final = "4.3.1"
SPARK: Final = "4.2.0"
_SOURCE: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""The connector's own jars; what they need besides is in Spark."""


def jars() -> Path:
    """The folder of Kafka's jars; fetched on first use."""
    coordinates = [f"org.apache.kafka:{name}:{VERSION}" for name in ("kafka_2.13", "kafka-tools")]
    return genuine.fetched(f"kafka-{VERSION}", coordinates)


def source_jars() -> str:
    """The connector's jars, as `spark.jars` takes them."""
    lib = genuine.fetched(f"spark-kafka-{SPARK}", _SOURCE, without=genuine.ALONE)
    names = [f"{artifact}-{version}.jar" for _, artifact, version in _parts()]
    return ",".join(str(lib / name) for name in names)


def _parts() -> list[list[str]]:
    return [coordinate.split(":") for coordinate in _SOURCE]


def python() -> Path:
    """A Python that has the Spark of that connector; made on first use."""
    folder = genuine.CACHE / f"spark-{SPARK}"
    found = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = [f"pyspark=={SPARK}", "setuptools"]
        subprocess.run([str(found), "-m", "pip", "install", "-q", *packages], check=True)
        (folder / "complete").touch()
    return found


def _java(main: str, *args: str, heap: str = "1g") -> list[str]:
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", "-cp", f"{jars()}/*", main, *args]


@contextlib.contextmanager
def broker(folder: Path, *, partitions: int) -> Iterator[str]:
    """A broker in a folder, until the block ends; gives its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = genuine.free_port(), genuine.free_port()
    address, config = f"127.0.0.1:{port}", folder / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "num.partitions": str(partitions),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    home = folder / "home"
    identity = "cm9xdWV0LWJlc2lkZS1rYQ"  # any 16 bytes in base64
    formatting = _java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config))
    subprocess.run(formatting, check=True, capture_output=True, env=_environment(home))
    log = folder / "kafka.log"
    with genuine.process(_java("kafka.Kafka", str(config)), home, log) as child:
        _wait_until_open(port, child)
        yield address


def _wait_until_open(port: int, child: "subprocess.Popen[bytes]") -> None:
    """Until it listens; it has no log without a logging library."""
    deadline = time.monotonic() + genuine.START_SECONDS_MAX
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError("Kafka did not start")


def fill(address: str, topic: str, messages: int, size: int, folder: Path) -> None:
    """Random messages, as Kafka's own benchmark sends them."""
    args = ["--topic", topic, "--num-records", str(messages), "--record-size", str(size)]
    args += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={address}"]
    command = _java("org.apache.kafka.tools.ProducerPerformance", *args, heap="512m")
    subprocess.run(command, check=True, capture_output=True, env=_environment(folder / "home"))


def _environment(home: Path) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "HOME": str(home)}


def spark(script: Path, *args: str, folder: Path) -> str:
    """The output of a script in that Spark."""
    return _run([str(python()), str(script), source_jars(), *args], folder)


def _run(command: Sequence[str], folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    environment["PYSPARK_PYTHON"] = command[0]
    done = subprocess.run(
        list(command), capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    if done.returncode:
        raise RuntimeError(f"{command[1]} failed: {done.stderr[-2000:]}")
    return done.stdout
