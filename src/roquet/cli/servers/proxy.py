"""roquet proxy: serves RocketMQ 5's official clients, by gRPC, in front of a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from roquet.cli.command_options import option
from roquet.cli.operator_command import check_extra
from roquet.cli.process import runtime
from roquet.cli.servers.server_options import VerboseOptions
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import NamesrvOption, namesrv_addresses
from roquet.model.errors import ConfigError
from roquet.net.address import check_port
from roquet.proxy.config import PORT, ProxyConfig

NEEDED: Final = ("grpc", "google")
"""Modules of the packages grpcio and protobuf."""


class ProxyServerOptions(VerboseOptions):
    """Options of `roquet proxy`."""

    namesrv: NamesrvOption = None
    port: int = option("0 takes any free one.", default=PORT)
    host: str = option("The interface to listen on.", default="0.0.0.0")


def proxy(options: ProxyServerOptions) -> None:
    """Serve RocketMQ 5's official clients in front of a cluster, Apache's or Roquet's."""
    check_installed()
    check_port(options.port)
    servers = namesrv_addresses(options.namesrv)
    runtime.run(_serve(servers, options.host, options.port))


def check_installed() -> None:
    """Raise UsageError when a package of the extra `grpc` is not installed."""
    check_extra("grpc", NEEDED)


async def _serve(namesrv: str, host: str, port: int) -> None:
    from roquet.proxy.server import ProxyServer

    stop = runtime.stop_signal()
    async with ProxyServer(namesrv, ProxyConfig(host=host, port=port)) as server:
        output.echo(f"proxy ready at {server.address}")
        await stop.wait()


@asynccontextmanager
async def dev_proxy(namesrv: str, host: str, port: int) -> AsyncIterator[str]:
    """Serve a proxy of a developer's cluster; yields its address."""
    from roquet.proxy.server import ProxyServer

    try:
        config = ProxyConfig(host=host, port=port, creates_topics=True)
        async with ProxyServer(namesrv, config) as server:
            yield server.address
    except ConfigError as error:  # here the broker has --port
        raise ConfigError(str(error).replace("port:", "--grpc-port:")) from None
