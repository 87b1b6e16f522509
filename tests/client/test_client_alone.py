"""The client, the test cluster and the plugin need only msgspec: other packages are extras."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

BLOCKED = """
import sys

BLOCKED = {
    "typer", "rich", "pydantic", "pygments", "uvloop", "zstandard", "lz4", "yaml", "click",
    "opentelemetry",
}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Blocked())
"""

PROGRAM = """
from roquet.client import Compression, ConfigError, ConsumerConfig, ProducerConfig
from roquet.client.blocking import Producer, PushConsumer
from roquet.testing.cluster import BlockingCluster

with BlockingCluster() as cluster:
    with Producer(cluster.namesrv_addr) as producer:
        producer.send("orders", b"x" * 10_000)
    for kind, settings in (
        (ProducerConfig, {"compression": Compression.ZSTD}), (ProducerConfig, {"tracing": True})
    ):
        try:
            Producer(cluster.namesrv_addr, config=kind(**settings))
        except ConfigError as error:
            print(error)
    with PushConsumer(cluster.namesrv_addr, group="g", topic="orders") as consumer:
        with consumer.next(10_000) as message:
            print(len(message.body))
assert not BLOCKED & set(sys.modules)
"""

COMMAND = """
sys.argv = ["roquet", "dev"]
from roquet.__main__ import main
main()
"""


def run_without_extras(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_clients_and_the_test_cluster_work_without_the_packages_of_extras() -> None:
    done = run_without_extras(PROGRAM)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "compression: Zstandard bodies need zstandard, which is not installed: "
        "pip install 'roquet[compression]'",
        "tracing: opentelemetry-api is missing: pip install 'roquet[tracing]'",
        "10000",
    ]


def test_the_command_line_says_how_to_install_its_packages() -> None:
    done = run_without_extras(COMMAND)
    assert (done.returncode, done.stdout) == (2, "")
    first, *lines = done.stderr.splitlines()
    assert first == "roquet: the command line needs typer, which is not installed:"
    assert [line.split("  ")[1] for line in lines] == [
        "pip install 'roquet[cli]'", "pip install 'roquet[server]'",
    ]  # fmt: skip


def loaded_by(statement: str, *, after: str = "sys") -> list[str]:
    """The modules that a statement loads in a new process which has imported others before."""
    program = f"""
import sys, {after}
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()


def test_the_pytest_plugin_loads_nothing_until_a_fixture_is_asked_for() -> None:
    loaded = loaded_by("import roquet.testing.plugin", after="pytest")
    assert loaded == ["roquet", "roquet.testing", "roquet.testing.plugin"]


def test_an_import_of_the_client_loads_no_part_of_it() -> None:
    loaded = loaded_by("import roquet.client", after="typing, importlib")
    assert loaded == ["roquet", "roquet.client"]


@pytest.mark.parametrize(
    ("name", "most", "absent"),
    [
        ("Producer", 93, {"roquet.client.rebalance", "roquet.client.reading.request_reply"}),
        ("PushConsumer", 157, {"roquet.store", "roquet.rules.sql92"}),
    ],
)
def test_a_client_loads_the_modules_that_it_works_with(
    name: str, most: int, absent: set[str]
) -> None:
    loaded = loaded_by(f"from roquet.client import {name}")
    assert len([module for module in loaded if module.startswith("roquet")]) <= most
    unneeded = {"uvloop", "fractions", "difflib", "pathlib", "ipaddress", "urllib", "json"}
    ours = ("client.tracing.tracer", "wire.fastjson.parser", "wire.signing")
    absent |= unneeded | {f"roquet.{module}" for module in ours}
    assert not absent & set(loaded)
