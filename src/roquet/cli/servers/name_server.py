"""roquet namesrv: a name server, and a controller in the same process if that is asked for."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roquet.cli.process import runtime
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
from roquet.model.errors import ConfigError
from roquet.namesrv.config import PORT, NameServerConfig

if TYPE_CHECKING:
    from roquet.controller.config import ControllerConfig


def namesrv(  # noqa: PLR0913 - each is an option
    *,
    port: Annotated[int | None, any_port(PORT)] = None,
    host: SettledHostOption = None,
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
    access_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Users and policies, as `roquet acl export` writes."),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    metrics: MetricsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a name server, and a controller in the same process if that is asked for."""
    from roquet.cli.servers.name_server_settings import name_server_settings

    runtime.log_to_stderr(verbose=verbose)
    tls = server_tls(tls_cert, tls_key, tls_client_ca)
    options = {
        "port": port, "host": host, "directory": data, "tls": tls, "access_file": access_file,
    }  # fmt: skip
    options |= exporter_options(metrics)
    embedded = {"store": controller, "port": controller_port, "host": host, "tls": tls}
    settings = name_server_settings(config, options, embedded)
    runtime.run(_namesrv(settings.namesrv, settings.controller))


async def _namesrv(config: NameServerConfig, controller: "ControllerConfig | None") -> None:
    from roquet.namesrv.app import NameServer

    stop = runtime.stop_signal()
    async with AsyncExitStack() as servers:
        names = await servers.enter_async_context(NameServer(config))
        output.echo(f"name server ready at {names.address}")
        if controller is not None:
            output.echo(f"controller ready at {await _embedded(servers, controller)}")
        await stop.wait()


async def _embedded(servers: AsyncExitStack, config: "ControllerConfig") -> str:
    """Start a controller in this process; returns its address."""
    from roquet.controller.app import ControllerServer

    try:
        server = await servers.enter_async_context(ControllerServer(config))
    except ConfigError as error:  # here the name server has --port
        raise ConfigError(str(error).replace("--port", "--controller-port")) from None
    return server.address
