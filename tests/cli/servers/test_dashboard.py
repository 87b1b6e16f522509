"""roquet dashboard as users start it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.cli.servers.test_start import failing, started

from roquet.cli import operator_command
from roquet.cli.servers import dashboard
from roquet.cli.servers.dashboard import job_rows, table_source
from roquet.dashboard.config import DashboardConfig
from roquet.lake.status import JobStatus, LagPoint, write_status
from roquet.model.errors import ConfigError, UsageError


def test_a_dashboard_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        operator_command, "find_spec", lambda name: None if name == "jinja2" else name
    )
    with pytest.raises(UsageError, match=r"jinja2 not installed: pip install 'roquet\[dashboard"):
        dashboard.check_installed()


def test_the_command_and_the_dashboard_have_one_port() -> None:
    from roquet.dashboard import config

    assert dashboard.PORT == config.PORT


@pytest.mark.slow
def test_without_login_it_is_for_this_machine_alone(tmp_path: Path) -> None:
    code, output = failing("dashboard", "--host", "0.0.0.0", cwd=tmp_path)
    assert code == 2
    assert "everybody who reaches it could change the cluster" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_port_that_is_taken_is_named_by_the_option_of_roquet_dev(tmp_path: Path) -> None:
    arguments = ("dev", "--memory", "--port", "0", "--namesrv-port", "0", "--host", "127.0.0.1")
    options = ("--dashboard", "--dashboard-port", "0")
    with started(*arguments, *options, cwd=tmp_path, until="dashboard at") as (printed, _):
        url = printed.split()[-1]
        with urlopen(f"{url}brokers") as page:
            assert b"broker-a" in page.read()
        port = url.rstrip("/").rpartition(":")[2]
        code, output = failing(*arguments, *options[:2], port, cwd=tmp_path)
        assert code == 2
        assert f"--dashboard-port {port}" in output


@pytest.mark.slow
def test_it_shows_a_cluster_until_it_is_stopped(tmp_path: Path) -> None:
    arguments = ("dashboard", "-n", "127.0.0.1:9", "--port", "0")
    with (
        started(*arguments, cwd=tmp_path) as (printed, _),
        urlopen(f"{printed.split()[-1]}login") as page,
    ):
        assert page.status == 200


def test_a_wrong_port_is_one_clear_sentence() -> None:
    with pytest.raises(ConfigError, match="is no port"):
        dashboard.dashboard(dashboard.DashboardOptions(port=70_000))


@pytest.mark.parametrize("is_behind_tls", [False, True])
async def test_logins_that_can_be_read_on_their_way_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_behind_tls: bool
) -> None:
    @asynccontextmanager
    async def serve(*_: object) -> AsyncIterator[str]:
        yield "URL"

    stopped = asyncio.Event()
    stopped.set()
    monkeypatch.setattr("roquet.dashboard.server.serve_dashboard", serve)
    monkeypatch.setattr("roquet.cli.process.runtime.stop_signal", lambda: stopped)
    settings = DashboardConfig(
        name_servers="n:9876", host="192.0.2.7", login=True, is_behind_tls=is_behind_tls
    )
    await dashboard.serve_until_stopped(settings)
    printed = capsys.readouterr()
    assert "dashboard ready at URL" in printed.out
    assert ("passwords and cookies" in printed.err) is not is_behind_tls


def test_notes_beside_a_table_are_read(tmp_path: Path) -> None:
    point = LagPoint(at_ms=2_000, committed=90, waiting=10, oldest_ms=1_000)
    status = JobStatus(
        job="archive", topic="orders", number=3, committed_ms=1_500, offsets={}, points=(point,)
    )
    write_status(tmp_path, status)
    assert table_source() is job_rows
    (row,) = job_rows(str(tmp_path))
    assert (row.topic, row.commits, row.lag, row.lag_s) == ("orders", 3, 10, 1.0)
    assert row.overtaken_s is None


def test_a_directory_without_notes_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no status"):
        job_rows(str(tmp_path))
