"""Every example runs against a cluster and says what it should."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.testing.cluster import BlockingCluster

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

SAID = {
    "consume.py": "mine now: Bills@broker-a:0",
    "pin_to_machine.py": "stored report.pdf",
    "idempotent.py": "in all 600",
    "pull.py": "100 entries",
    "send.py": "at offset 0",
    "send_many.py": "Readings@broker-a:3",
    "without_async.py": "letter 2",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example: Path, address: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", example],
        env={**os.environ, "NAMESRV_ADDR": address, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert SAID[example.name] in ended.stdout
