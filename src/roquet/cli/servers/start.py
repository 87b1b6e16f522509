"""roquet dev, broker: servers that run until a signal."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet import __version__
from roquet.broker.settings import config_file
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.value_formats import PORT
from roquet.cli.command_options import As, option
from roquet.cli.process import runtime
from roquet.cli.servers import proxy
from roquet.cli.servers.dashboard import PORT as DASHBOARD_PORT
from roquet.cli.servers.dashboard import check_installed, dev_dashboard
from roquet.cli.servers.server_options import (
    ADVERTISE,
    ALL_INTERFACES,
    DATA,
    HOST,
    MEMORY,
    MetricsOptions,
    VerboseOptions,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.log_records import logger
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import parse_addresses
from roquet.namesrv.config import PORT as NAMESRV_PORT
from roquet.namesrv.config import NameServerConfig
from roquet.net.address import LOOPBACK, check_port
from roquet.proxy.config import PORT as GRPC_PORT
from roquet.store.filesystem.libc import keep_memory
from roquet.wire.records import speedups

if TYPE_CHECKING:
    from roquet.broker.app import BrokerServer

log = logger(__name__)

DEV_DATA: Final = Path("roquet-data")
"""Store directory of `roquet dev`, below the working directory."""

DEV_FREE_MIN: Final = 1024**3
"""Free bytes of disk below which `roquet dev` takes no messages: a laptop's disk is often over the
broker's usual share."""

MALLOC_TRIM_THRESHOLD: Final = 16 * 1024**2
"""Bytes of memory that a broker keeps between two large batches: to get them again from the system
took a tenth of its time."""

READY: Final = """\
Roquet {version} ({form})
  name server  {namesrv}
  broker       {broker}{grpc}
  messages     {data}

Paste into Python:

    from roquet.client.blocking import Producer

    with Producer("{namesrv}") as producer:
        print(producer.send("greetings", b"hello"))

or, in another terminal: roquet consume greetings
ready (Ctrl-C stops)"""


class DevOptions(VerboseOptions):
    """Options of `roquet dev`."""

    port: int = option("The broker's port; 0 takes any free one.", default=PORT)
    namesrv_port: int = option("The name server's.", default=NAMESRV_PORT)
    data: Path | None = DATA
    memory: bool = MEMORY
    advertise: str | None = ADVERTISE
    host: str | None = HOST
    grpc_port: int | None = option(
        f"RocketMQ 5's clients are served there; 0 takes any free one. {GRPC_PORT} where the extra"
        " grpc is installed, if it is free.",
        metavar="N",
    )
    dashboard: bool = option("Serve web pages, too, on 127.0.0.1.")
    dashboard_port: int = option(
        "The dashboard's port; 0 takes any free one.", default=DASHBOARD_PORT, metavar="N"
    )


def dev(options: DevOptions) -> None:
    """Start a name server and a broker in one process, for developers.

    They listen on 127.0.0.1, or on all interfaces if --advertise names an address for others.
    """
    if options.dashboard:
        check_installed()
        check_port(options.dashboard_port)
    if options.grpc_port is not None:
        proxy.check_installed()
        check_port(options.grpc_port)
    host = options.host or (LOOPBACK if options.advertise is None else ALL_INTERFACES)
    config = msgspec.structs.replace(
        config_file.read("", "", os.environ),
        store_dir=_store_directory(options.data, options.memory, DEV_DATA),
        port=options.port,
        vip_port=False,  # only very old clients use it, and other brokers may want that port
        host=host,
        advertise=options.advertise,
        broker_name="broker-a",
        free_min=DEV_FREE_MIN,
        recall_message=True,  # a developer tries things; Apache's default is off
    )
    names = NameServerConfig(host=host, port=options.namesrv_port, tls=config.server_tls)
    dashboard_port = options.dashboard_port if options.dashboard else None
    runtime.run(_dev(names, config, dashboard_port, options.grpc_port))


def _addresses(text: str) -> tuple[str, ...]:
    return parse_addresses(text, "--namesrv")


class BrokerOptions(MetricsOptions):
    """Options of `roquet broker`."""

    config: Path | None = settings_file("A broker.conf, in genuine or in our own words.")
    namesrv: str | None = option(
        "The name servers.", "-n", gives=As("name_servers", _addresses), metavar="HOST:PORT[;...]"
    )
    name: str | None = option("The broker's name in its cluster.", gives=As("broker_name"))
    port: int | None = option("0 takes any free one.")
    data: Path | None = DATA
    memory: bool = MEMORY
    advertise: str | None = ADVERTISE
    host: str | None = HOST


def broker(options: BrokerOptions) -> None:
    """Start a broker. Options win over the environment, and that over the file."""
    config, environ = options.config, os.environ
    loaded = config_file.load(config, environ) if config else config_file.read("", "", environ)
    chosen = options.fields_of(BrokerConfig, absent=(None, "")) | options.exporter
    store_dir = _store_directory(options.data, options.memory, loaded.store_dir)
    settings = msgspec.structs.replace(loaded, store_dir=store_dir, **chosen)
    check_port(settings.port)
    runtime.run(_broker(settings))


async def _dev(
    namesrv: NameServerConfig,
    config: BrokerConfig,
    dashboard_port: int | None,
    grpc_port: int | None,
) -> None:
    from roquet.broker.app import BrokerServer
    from roquet.namesrv.app import NameServer

    keep_memory(MALLOC_TRIM_THRESHOLD)
    stop = runtime.stop_signal()
    async with AsyncExitStack() as servers:
        try:
            names = await servers.enter_async_context(NameServer(namesrv))
        except ConfigError as error:  # here the broker has --port
            raise ConfigError(str(error).replace("--port", "--namesrv-port")) from None
        config = msgspec.structs.replace(config, name_servers=(names.address,))
        started = await servers.enter_async_context(BrokerServer(config))
        grpc = await add_proxy(servers, names.address, started, grpc_port)
        if dashboard_port is not None:
            url = await servers.enter_async_context(dev_dashboard(names.address, dashboard_port))
            output.echo(f"dashboard at {url}")
        output.echo_lines(
            READY.format(
                version=__version__,
                form=speedups.DESCRIPTION,
                namesrv=names.address,
                broker=started.address,
                grpc=f"\n  gRPC         {grpc}" if grpc else "",
                data=config.store_dir.resolve() if config.store_dir else "in memory",
            )
        )
        _warn_of_refusal(started)
        await runtime.serve_until(stop)


async def add_proxy(
    servers: AsyncExitStack, namesrv: str, broker: "BrokerServer", port: int | None
) -> str | None:
    """Serve RocketMQ 5's clients; where nobody asked for that, only if it is possible.

    Returns the address, or why they are not served; None without the extra that it needs.
    """
    if port is None and not proxy.is_installed():
        return None
    serving = proxy.dev_proxy(namesrv, broker, GRPC_PORT if port is None else port)
    try:
        return await servers.enter_async_context(serving)
    except ConfigError as error:
        if port is not None:
            raise
        return f"not served: {error}"


def _warn_of_refusal(server: "BrokerServer") -> None:
    if (refusal := server.broker.log.store.refusal) is not None:
        output.echo(f"no messages are taken: {refusal}", err=True)


async def _broker(config: BrokerConfig) -> None:
    from roquet.broker.app import BrokerServer

    keep_memory(MALLOC_TRIM_THRESHOLD)
    stop = runtime.stop_signal()
    log.info("Roquet %s (%s)", __version__, speedups.DESCRIPTION)
    async with BrokerServer(config) as server:
        output.echo(f"broker {config.broker_name} ready at {server.address}")
        _warn_of_refusal(server)
        await runtime.serve_until(stop)


def _store_directory(data: Path | None, memory: bool, otherwise: Path | None) -> Path | None:
    """The store directory; None means memory."""
    if memory and data is not None:
        raise UsageError("--memory keeps nothing in a directory: leave --data or --memory out")
    return None if memory else data or otherwise
