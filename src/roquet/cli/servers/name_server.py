"""roquet namesrv: a name server, and a controller in the same process if that is asked for."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roquet.cli.process import runtime, systemd
from roquet.cli.servers.server_options import (
    AccessFileOption,
    CertificateUsersOption,
    HostOption,
    MetricsOption,
    ProxyOption,
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
    proxies,
    server_tls,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.model.errors import ConfigError
from roquet.namesrv.config import PORT, NameServerConfig

if TYPE_CHECKING:
    from roquet.controller.config import ControllerConfig
    from roquet.namesrv.app import NameServer


def namesrv(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    *,
    port: Annotated[int | None, any_port(PORT)] = None,
    host: HostOption = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Where key-value settings are; else memory."),
    ] = None,
    config: Annotated[Path | None, settings_file("A namesrv.conf, with Apache's keys.")] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            metavar="STORE",
            help="Run a controller, too, with its state in file:DIR, etcd:HOST:PORT[,...].",
        ),
    ] = None,
    controller_port: Annotated[
        int | None, typer.Option(metavar="N", help="The controller's port, 9878 by default.")
    ] = None,
    access_file: AccessFileOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    tls_client_auth: TlsClientAuthOption = None,
    tls_mode: TlsModeOption = None,
    tls_ca: TlsCaOption = None,
    certificate_users: CertificateUsersOption = None,
    proxy_from: ProxyOption = None,
    metrics: MetricsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a name server, and a controller in the same process if that is asked for."""
    if context.invoked_subcommand is not None:  # roquet namesrv settings …
        return
    from roquet.cli.servers.name_server_settings import name_server_settings

    runtime.log_to_stderr(verbose=verbose)
    options = {
        "port": port,
        "host": host,
        "directory": data,
        "access_file": access_file,
        "certificate_users": certificate_users,
        "tls": server_tls(tls_cert, tls_key, tls_client_ca, tls_mode, tls_client_auth),
        "calls": calls_tls(tls_ca, tls_cert, tls_key),
        "proxy_protocol_from": proxies(proxy_from),
    }
    options |= exporter_options(metrics)
    embedded = {
        "store": controller,
        "port": controller_port,
        "host": host,
        "access_file": access_file,
        "certificate_users": certificate_users,
    }
    settings = name_server_settings(config, options, embedded)
    runtime.run(_namesrv(settings.namesrv, settings.controller))


async def _namesrv(config: NameServerConfig, controller: "ControllerConfig | None") -> None:
    from roquet.namesrv.app import NameServer

    stop = runtime.stop_signal()
    async with AsyncExitStack() as servers:
        names = await servers.enter_async_context(NameServer(config))
        output.echo(f"name server ready at {names.address}")
        if controller is not None:
            output.echo(f"controller ready at {await embed_controller(servers, names, controller)}")
        await systemd.serve_until(stop)


async def embed_controller(
    servers: AsyncExitStack, names: "NameServer", config: "ControllerConfig"
) -> str:
    """Start a controller in the process of a name server, whose metrics page says if it leads.

    Returns its address.
    """
    from roquet.controller.app import ControllerServer, add_leadership

    try:
        server = await servers.enter_async_context(ControllerServer(config))
    except ConfigError as error:  # here the name server has --port
        raise ConfigError(str(error).replace("--port", "--controller-port")) from None
    if names.exporter is not None:
        names.exporter.add_source(partial(add_leadership, server.controller))
    return server.address
