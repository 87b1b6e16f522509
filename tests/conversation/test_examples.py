"""Every example runs against a cluster and says what it should."""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LOGGED = {"retries.py": "is a dead letter of group charging after 1 try"}
"""A warning that an example leads to; others log nothing."""
SERVICE = "fastapi_app.py"
TESTS = "test_billing.py"
TASKS = "taskiq_app.py"
DAG = "airflow_dag.py"
"""Needs Airflow, whose own test command runs it."""

SAID = {
    "around_sends.py": "3 sent, 1 failed, noted A-17 A-19 A-20",
    "celery_app.py": "bob pays 42 EUR after 1 retries",
    "choosing.py": "popped 12",
    "consume.py": "mine now: Bills@broker-a:0",
    "django_app.py": "billing ada 42 EUR",
    "logs.py": '"message": "done"',
    "opentelemetry_spans.py": "    process Orders",
    "pin_to_machine.py": "stored report.pdf",
    "faststream_app.py": "mailed ada 119 EUR",
    "idempotent.py": "in all 600",
    "pull.py": "100 entries",
    "readyz.py": "\nready\n",
    "retries.py": "charged 13 after 2 retries",
    "send.py": "stored in Orders@broker-a:",
    "send_many.py": "Readings@broker-a:3",
    "structlog_context.py": '"event": "a rounded sum"',
    "several_processes.py": "200 messages, 2 processes, exit codes [0, 0]",
    "without_async.py": "letter 2",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


def run(arguments: Sequence[str | Path], address: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "NAMESRV_ADDR": address, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


PROGRAMS = [path for path in EXAMPLES if path.name not in (SERVICE, TESTS, TASKS, DAG)]


@pytest.mark.parametrize("example", PROGRAMS, ids=lambda path: path.name)
def test_an_example_runs(example: Path, address: str) -> None:
    ended = run(["-W", "error", example], address)
    logged = LOGGED.get(example.name)
    assert (ended.returncode, ended.stderr if logged is None else "") == (0, "")
    assert logged is None or [logged in line for line in ended.stderr.splitlines()] == [True]
    assert SAID[example.name] in ended.stdout


def test_the_tasks_of_taskiq_run_at_its_worker(address: str) -> None:
    environment = {**os.environ, "NAMESRV_ADDR": address, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "taskiq", "worker", "taskiq_app:broker", "--workers", "1"]
    with subprocess.Popen(command, cwd=ROOT / "examples", env=environment) as worker:
        try:
            ended = run([ROOT / "examples" / TASKS], address)
        finally:
            worker.terminate()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "2 + 3 = 5\ndone by try 2\n20 + 22 = 42\n"


def test_the_examples_of_tests_pass(address: str) -> None:
    ended = run(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "examples" / TESTS], address
    )
    assert (ended.returncode, "3 passed" in ended.stdout) == (0, True), ended.stdout


@pytest.mark.virtual_time(False)
async def test_the_fastapi_service_sends_and_bills(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", address)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    service = importlib.import_module("fastapi_app")
    asked = httpx.AsyncClient(transport=httpx.ASGITransport(app=service.app), base_url="http://app")
    async with service.mq.lifespan(service.app), asked as client:
        assert (await client.get("/readyz")).json() == {"ready": True, "faults": []}
        answer = await client.post("/orders", json={"customer": "ada", "amount": 42})
        assert (answer.status_code, list(answer.json())) == (202, ["message_id"])
        async with asyncio.timeout(30):
            while not (billed := (await client.get("/billed")).json()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert billed == [{"customer": "ada", "amount": 42}]
