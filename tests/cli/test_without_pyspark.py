"""Commands and pages that need no Spark, in a process where pyspark cannot be imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.lake.status import JobStatus, LagPoint, write_status

ROOT = Path(__file__).resolve().parents[2]

REFUSED = "import sys; sys.modules.update(pyspark=None, py4j=None)\n"
"""Imports of both raise ModuleNotFoundError, and `importlib.util.find_spec` finds neither."""

HELP = """
from typer.main import get_command
from typer.testing import CliRunner
from roquet.cli.main import app

def paths(command, *names):
    yield names
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, *names, name)

for names in paths(get_command(app)):
    result = CliRunner().invoke(app, [*names, "--help"])
    print(result.exit_code, "Usage:" in result.output, *names)
"""

REFUSALS = """
from typer.testing import CliRunner
from roquet.cli.main import app

for command in sys.argv[1:]:
    error = CliRunner().invoke(app, command.split()).exception
    print(f"{type(error).__name__}: {error}")
"""

COMMAND = """
from roquet.cli.main import main
main()
"""

PAGES = """
import asyncio, re
import httpx
from roquet.cli.servers.dashboard import table_source
from roquet.client.producer import Producer
from roquet.dashboard import app
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import open_dashboard
from roquet.testing.cluster import cluster

VALUES = {"/topics": "orders", "/groups": "billing", "/brokers": "broker-0#0"}

def path_of(route):
    return re.sub(r"{[^}]*}", VALUES.get("/" + route.path.split("/")[1], "billing"), route.path)

routes = [route for module in app.PAGES for route in module.ROUTES if "GET" in route.methods]

paths = sorted({path_of(route) for route in routes} - {"/messages/tail/events"})

async def ask():
    async with cluster() as running, Producer(running.namesrv_addr) as producer:
        await producer.send("orders", b"x")
        settings = DashboardConfig(name_servers=running.namesrv_addr, tables=(sys.argv[1],))
        async with open_dashboard(settings, job_source=table_source()) as dashboard:
            transport = httpx.ASGITransport(app.application(dashboard), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as web:
                for path in paths:
                    response = await web.get(path, headers={"accept": "text/html"})
                    print(response.status_code, path)
                response = await web.get("/jobs", headers={"accept": "application/json"})
                print([job["topic"] for job in response.json()["facts"]["jobs"]])

asyncio.run(ask())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", REFUSED + program, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A directory with the notes of an archive."""
    point = LagPoint(at_ms=2_000, committed=90, waiting=10, oldest_ms=1_000)
    write_status(
        tmp_path,
        JobStatus(
            job="archive", topic="orders", number=3, committed_ms=1_500, offsets={}, points=(point,)
        ),
    )
    return str(tmp_path)


def test_every_command_shows_its_help() -> None:
    done = run(HELP)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "0 True spark lag" in lines
    assert [line for line in lines if not line.startswith("0 True")] == []


def test_every_page_of_the_dashboard_is_shown(table: str) -> None:
    done = run(PAGES, table)
    assert done.stderr == ""
    *pages, jobs = done.stdout.splitlines()
    assert "200 /jobs" in pages
    assert [page for page in pages if page[0] == "5"] == []
    assert jobs == "['orders']"


def test_the_lag_of_a_table_is_shown(table: str) -> None:
    done = run(COMMAND, "spark", "lag", "--table", table, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"orders"' in done.stdout


def test_a_command_that_needs_it_says_what_to_install(tmp_path: Path) -> None:
    needing = [
        "spark archive orders DIR",
        "spark audit orders DIR",
        "spark lag DIR",
        "spark maintain DIR",
        "spark materialize orders DIR",
        "spark repair billing DIR",
        "spark replay DIR orders",
        "demo",
        "lab run --scenario crash --out DIR",
    ]
    done = run(REFUSALS, *(command.replace("DIR", str(tmp_path / "lake")) for command in needing))
    assert done.stderr == ""
    refusals = done.stdout.splitlines()
    assert len(refusals) == len(needing)
    said = re.compile(r"UsageError: .*\bpyspark\b.*: pip install 'roquet\[(spark|demo)")
    assert [refusal for refusal in refusals if not said.match(refusal)] == []
