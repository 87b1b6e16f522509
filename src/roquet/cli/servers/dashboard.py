"""roquet dashboard: web pages that show a cluster and change it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.cli.command_options import As, option
from roquet.cli.operator_command import check_extra
from roquet.cli.process import runtime
from roquet.cli.servers.server_options import TLS_CERT, TLS_KEY, VerboseOptions, server_tls
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import NamesrvOption, namesrv_addresses
from roquet.dashboard.config import DashboardConfig
from roquet.model.errors import ConfigError
from roquet.net.address import check_port
from roquet.net.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from roquet.dashboard.sampling.jobs import JobRow, JobSource

PORT: Final = 8082
"""The dashboard's port if nothing says another one; Apache RocketMQ's dashboard has it, too."""

READABLE: Final = (
    "passwords and cookies of logins can be read on their way: give --tls-cert and --tls-key, or "
    "let a proxy speak TLS and say --behind-tls"
)
"""Warning of a dashboard with logins that browsers reach without TLS."""

NEEDED: Final = ("starlette", "uvicorn", "jinja2", "python-multipart")

TABLE_PACKAGES: Final = ("numpy", "pyarrow")
"""Packages of the extra `arrow` that read tables in directories and in object stores."""


class TlsOptions(VerboseOptions):
    """Options of a server that takes TLS, and checks no certificates of clients."""

    tls_cert: Path | None = TLS_CERT
    tls_key: Path | None = TLS_KEY


class DashboardOptions(TlsOptions):
    """Options of `roquet dashboard`."""

    namesrv: NamesrvOption = None
    port: int = option("0 takes any free one.", default=PORT)
    host: str = option("The interface to listen on.", default="127.0.0.1")
    login: bool = option("Let users of the cluster log in, and nobody else in.")
    read_only: bool = option("Refuse every change.")
    audit_file: Path | None = option("Append each change to it, as JSON lines.", metavar="FILE")
    mask: list[str] | None = option(
        "Hide bodies, or a field of JSON bodies.", gives=As("masks", tuple), metavar="TOPIC[:FIELD]"
    )
    table: list[str] | None = option(
        "A table of an archive, for Jobs.", gives=As("tables", tuple), metavar="URL"
    )
    public_name: list[str] | None = option(
        "A name by which browsers reach it.", gives=As("public_names", tuple), metavar="HOST"
    )
    behind_tls: bool = option(
        "A proxy before it speaks TLS with browsers.", gives=As("is_behind_tls")
    )


def dashboard(options: DashboardOptions) -> None:
    """Show a cluster as web pages, and change it there."""
    check_installed()
    check_port(options.port)
    settings = DashboardConfig(
        name_servers=namesrv_addresses(options.namesrv),
        tls=server_tls(options.tls_cert, options.tls_key),
        **options.fields_of(DashboardConfig),
    )
    runtime.run(serve_until_stopped(settings))


def check_installed() -> None:
    """Raise UsageError when a package of the extra `dashboard` is not installed."""
    check_extra("dashboard", NEEDED)


@asynccontextmanager
async def dev_dashboard(namesrv: str, port: int) -> AsyncIterator[str]:
    """Serve a dashboard of a developer's cluster on this machine alone; yields its URL."""
    from roquet.dashboard.server import serve_dashboard

    try:
        async with serve_dashboard(DashboardConfig(name_servers=namesrv, port=port)) as url:
            yield url
    except ConfigError as error:  # here the broker has --port
        raise ConfigError(str(error).replace("--port", "--dashboard-port")) from None


async def serve_until_stopped(settings: DashboardConfig) -> None:
    """Serve a dashboard until the process is told to stop."""
    from roquet.dashboard.server import serve_dashboard

    stop = runtime.stop_signal()
    if settings.is_readable:
        output.echo(READABLE, err=True)
    async with serve_dashboard(settings, table_source()) as url:
        output.echo(f"dashboard ready at {url}")
        await stop.wait()


def table_source() -> "JobSource | None":
    """The function that reads the notes of a table; None when packages for it are missing."""
    return job_rows if all(find_spec(name) for name in TABLE_PACKAGES) else None


def job_rows(table: str) -> "Sequence[JobRow]":
    """The notes beside a table's data, one for each topic. Raises ConfigError when none is there.

    An object store is asked with the credentials of the environment.
    """
    from roquet.dashboard.sampling.jobs import JobRow
    from roquet.lake.lag.table_lag import table_lag
    from roquet.lake.status import read_statuses

    now_ms = SYSTEM_CLOCK.now_ms()
    lags = [table_lag(table, status, now_ms) for status in read_statuses(table)]
    return [
        JobRow(
            table=lag.table,
            job=lag.job,
            topic=lag.topic,
            commits=lag.number,
            committed_ms=lag.committed_ms,
            looked_ms=lag.at_ms,
            lag=lag.lag,
            lag_s=lag.lag_s,
            state=lag.state.words,
            overtaken_s=lag.overtaken_s,
            alert=lag.alert,
        )
        for lag in lags
    ]
