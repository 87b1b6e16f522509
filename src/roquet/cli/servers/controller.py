"""roquet controller: elects masters of brokers that replicate, alone or inside a name server."""

from pathlib import Path
from typing import Annotated

import typer

from roquet.cli.process import runtime, systemd
from roquet.cli.servers.controller_settings import DEFAULT_STORE, configured, load_settings
from roquet.cli.servers.server_options import (
    AccessFileOption,
    CertificateUsersOption,
    HostOption,
    MetricsOption,
    TlsCaOption,
    TlsCertOption,
    TlsClientAuthOption,
    TlsClientCaOption,
    TlsKeyOption,
    TlsModeOption,
    VerboseOption,
    any_port,
    calls_tls,
    exporter_options,
    server_tls,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.controller.config import PORT, ControllerConfig
from roquet.net.tls import Tls


def controller(  # noqa: PLR0913 - each is an option
    *,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="file:DIR, etcd:HOST:PORT[,...], etcd+https:HOST:PORT[,...] or memory; "
            f"{DEFAULT_STORE} if nothing says it.",
        ),
    ] = None,
    port: Annotated[int | None, any_port(PORT)] = None,
    host: HostOption = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST[:PORT]", help="The address brokers are told."),
    ] = None,
    config: Annotated[
        Path | None, settings_file("A controller.conf, with Apache's keys or ours.")
    ] = None,
    access_file: AccessFileOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    tls_client_auth: TlsClientAuthOption = None,
    tls_mode: TlsModeOption = None,
    tls_ca: TlsCaOption = None,
    certificate_users: CertificateUsersOption = None,
    etcd_ca: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Who signs etcd's certificates.")
    ] = None,
    etcd_cert: Annotated[
        Path | None, typer.Option(metavar="PEM", help="The certificate that etcd is shown.")
    ] = None,
    etcd_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Its private key.")] = None,
    metrics: MetricsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a controller, which elects masters of brokers that replicate.

    With file:DIR it is the only one. Two or more share an etcd: one leads, another takes over.
    """
    runtime.log_to_stderr(verbose=verbose)
    options = {
        "store": store,
        "port": port,
        "host": host,
        "advertise": advertise,
        "access_file": access_file,
        "certificate_users": certificate_users,
        "tls": server_tls(tls_cert, tls_key, tls_client_ca, tls_mode, tls_client_auth),
        "calls": calls_tls(tls_ca, tls_cert, tls_key),
    }
    if etcd_ca or etcd_cert or etcd_key:
        options["etcd_tls"] = Tls(ca=etcd_ca, cert=etcd_cert, key=etcd_key)
    options |= exporter_options(metrics)
    loaded = load_settings(config) if config else ControllerConfig()
    runtime.run(_controller(configured(loaded, options)))


async def _controller(config: ControllerConfig) -> None:
    from roquet.controller.app import ControllerServer

    stop = runtime.stop_signal()
    async with ControllerServer(config) as server:
        output.echo(f"controller ready at {server.address}")
        await systemd.serve_until(stop)
