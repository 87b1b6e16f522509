"""roquet dashboard: web pages that show a cluster and change it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.servers.server_options import (
    TlsCertOption,
    TlsKeyOption,
    VerboseOption,
    server_tls,
)
from roquet.cli.servers.table_notes import table_source
from roquet.cli.terminal import output
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.model.errors import ConfigError, UsageError
from roquet.net.address import check_port

if TYPE_CHECKING:
    from roquet.dashboard.config import DashboardConfig

PORT: Final = 8082
"""The dashboard's port if nothing says another one; Apache RocketMQ's dashboard has it, too."""

READABLE: Final = (
    "passwords and cookies of logins can be read on their way: give --tls-cert and --tls-key, or "
    "let a proxy speak TLS and say --behind-tls"
)
"""Warning of a dashboard with logins that browsers reach without TLS."""

NEEDED: Final = ("starlette", "uvicorn", "jinja2", "python_multipart")


def dashboard(  # noqa: PLR0913 - each is an option
    *,
    namesrv: NamesrvOption = None,
    port: Annotated[int, typer.Option(help="0 takes any free one.")] = PORT,
    host: Annotated[str, typer.Option(help="The interface to listen on.")] = "127.0.0.1",
    login: Annotated[
        bool, typer.Option("--login", help="Let users of the cluster log in, and nobody else in.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    audit_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append each change to it, as JSON lines.")
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:FIELD]", help="Hide bodies, or a field of JSON bodies."),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A table of an archive, for Jobs.")
    ] = None,
    public_name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A name by which browsers reach it.")
    ] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy before it speaks TLS with browsers.")
    ] = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Show a cluster as web pages, and change it there."""
    check_installed()
    from roquet.dashboard.config import DashboardConfig

    runtime.log_to_stderr(verbose=verbose)
    check_port(port)
    settings = DashboardConfig(
        name_servers=namesrv_addresses(namesrv),
        host=host,
        port=port,
        login=login,
        read_only=read_only,
        audit_file=audit_file,
        masks=tuple(mask or ()),
        tables=tuple(table or ()),
        public_names=tuple(public_name or ()),
        is_behind_tls=behind_tls,
        tls=server_tls(tls_cert, tls_key, None),
    )
    runtime.run(serve_until_stopped(settings))


def check_installed() -> None:
    """Raise UsageError when a package of the extra `dashboard` is not installed."""
    missing = [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} not installed: pip install 'roquet[dashboard]'")


@asynccontextmanager
async def dev_dashboard(namesrv: str, port: int) -> AsyncIterator[str]:
    """Serve a dashboard of a developer's cluster on this machine alone; yields its URL."""
    from roquet.dashboard.config import DashboardConfig
    from roquet.dashboard.server import serve_dashboard

    try:
        async with serve_dashboard(DashboardConfig(name_servers=namesrv, port=port)) as url:
            yield url
    except ConfigError as error:  # here the broker has --port
        raise ConfigError(str(error).replace("--port", "--dashboard-port")) from None


async def serve_until_stopped(settings: "DashboardConfig") -> None:
    """Serve a dashboard until the process is told to stop."""
    from roquet.dashboard.server import serve_dashboard

    stop = runtime.stop_signal()
    if settings.is_readable:
        output.echo(READABLE, err=True)
    async with serve_dashboard(settings, table_source()) as url:
        output.echo(f"dashboard ready at {url}")
        await stop.wait()
