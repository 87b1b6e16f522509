"""The client needs only msgspec of the packages that `pip install roquet` installs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.testing.cluster import BlockingCluster

SOURCE = Path(__file__).resolve().parents[2] / "src"

PROGRAM = """
import sys

BLOCKED = {"typer", "rich", "pydantic", "pygments", "uvloop", "zstandard", "lz4"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Blocked())

from roquet.client import Compression, ConsumeFrom, ConsumerConfig, ProducerConfig, RecordError
from roquet.client.blocking import Producer, PushConsumer

with Producer(sys.argv[1]) as producer:
    producer.send("orders", b"x" * 10_000)
with Producer(sys.argv[1], config=ProducerConfig(compression=Compression.ZSTD)) as producer:
    try:
        producer.send("orders", b"x" * 10_000)
    except RecordError as error:
        print(error)
first = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
with PushConsumer(sys.argv[1], group="g", topic="orders", config=first) as consumer:
    with consumer.next(10_000) as message:
        print(len(message.body))
assert not BLOCKED & set(sys.modules)
"""


def test_it_works_without_the_packages_of_the_command_line(roquet_cluster: BlockingCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, roquet_cluster.namesrv_addr],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "Zstandard bodies need a package that is not installed: `pip install zstandard`",
        "10000",
    ]


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
        ("Producer", 120, {"roquet.client.rebalance", "roquet.client.tracing.tracer"}),
        (
            "PushConsumer",
            159,
            {"roquet.store", "roquet.rules.sql92", "roquet.client.tracing.tracer"},
        ),
    ],
)
def test_a_client_loads_the_modules_that_it_works_with(
    name: str, most: int, absent: set[str]
) -> None:
    loaded = loaded_by(f"from roquet.client import {name}")
    assert len([module for module in loaded if module.startswith("roquet")]) <= most
    assert not (absent | {"uvloop", "fractions", "difflib"}) & set(loaded)
