"""roquet controller: elects masters of brokers that replicate, alone or inside a name server."""

from pathlib import Path
from typing import Annotated

import typer

from roquet.cli.process import runtime
from roquet.cli.servers.controller_settings import DEFAULT_STORE, configured, load_settings
from roquet.cli.servers.server_options import (
    MetricsOption,
    SettledHostOption,
    TlsCertOption,
    TlsClientCaOption,
    TlsKeyOption,
    VerboseOption,
    any_port,
    exporter_options,
    server_tls,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.controller.config import PORT, ControllerConfig


def controller(  # noqa: PLR0913 - each is an option
    *,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help=f"file:DIR, etcd:HOST:PORT[,...] or memory; {DEFAULT_STORE} if nothing says it.",
        ),
    ] = None,
    port: Annotated[int | None, any_port(PORT)] = None,
    host: SettledHostOption = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST[:PORT]", help="The address brokers are told."),
    ] = None,
    config: Annotated[
        Path | None, settings_file("A controller.conf, with Apache's keys or ours.")
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    metrics: MetricsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a controller, which elects masters of brokers that replicate.

    With file:DIR it is the only one. Two or more share an etcd: one leads, another takes over.
    """
    runtime.log_to_stderr(verbose=verbose)
    options = {"store": store, "port": port, "host": host, "advertise": advertise}
    options |= exporter_options(metrics)
    tls = server_tls(tls_cert, tls_key, tls_client_ca)
    loaded = load_settings(config) if config else ControllerConfig()
    runtime.run(_controller(configured(loaded, options, tls)))


async def _controller(config: ControllerConfig) -> None:
    from roquet.controller.app import ControllerServer

    stop = runtime.stop_signal()
    async with ControllerServer(config) as server:
        output.echo(f"controller ready at {server.address}")
        await stop.wait()
