"""roquet namesrv: a name server, and a controller in the same process if that is asked for.

One file has the settings of both, as with Apache's name server. `listenPort` is the name server's;
the controller's is `controllerListenPort`, a key of ours. One process has one page of metrics, the
name server's.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.cli.command_options import option
from roquet.cli.process import runtime
from roquet.cli.servers.controller import configured, read_file
from roquet.cli.servers.server_options import (
    HOST,
    MetricsOptions,
    SecurityOptions,
    any_port,
    given,
    proxies,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.controller.config import ControllerConfig
from roquet.controller.settings import SETTINGS, UNUSED
from roquet.controller.settings import read_settings as read_controller_settings
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import parse_bool
from roquet.namesrv.config import PORT, NameServerConfig
from roquet.namesrv.handlers.settings import KEYS
from roquet.namesrv.handlers.settings import UNUSED as NAME_SERVER_UNUSED
from roquet.namesrv.settings_file import EMBEDDED_CONTROLLER, read_settings
from roquet.net.tls_properties import take_tls

if TYPE_CHECKING:
    from roquet.namesrv.app import NameServer

CONTROLLER_PORT: Final = "controllerListenPort"


class ProxyOptions(MetricsOptions):
    """Options of a server behind load balancers."""

    proxy_from: str | None = option(
        "Load balancers whose PROXY protocol is believed.", metavar="IP[/BITS],..."
    )


class NameServerOptions(SecurityOptions, ProxyOptions):
    """Options of `roquet namesrv`."""

    port: int | None = any_port(PORT)
    host: str | None = HOST
    data: Path | None = option("Where key-value settings are; else memory.", metavar="DIR")
    config: Path | None = settings_file("A namesrv.conf, with Apache's keys.")
    controller: str | None = option(
        "Run a controller, too, with its state in file:DIR, etcd:HOST:PORT[,...].", metavar="STORE"
    )
    controller_port: int | None = option("The controller's port, 9878 by default.", metavar="N")


def namesrv(options: NameServerOptions) -> None:
    """Start a name server, and a controller in the same process if that is asked for."""
    settings = {
        "port": options.port,
        "host": options.host,
        "directory": options.data,
        **options.security,
        "proxy_protocol_from": proxies(options.proxy_from),
        **options.exporter,
    }
    embedded = {
        "store": options.controller,
        "port": options.controller_port,
        "host": options.host,
        "access_file": options.access_file,
        "certificate_users": options.certificate_users,
    }
    found = name_server_settings(options.config, settings, embedded)
    runtime.run(_namesrv(found.namesrv, found.controller))


async def _namesrv(config: NameServerConfig, controller: ControllerConfig | None) -> None:
    from roquet.namesrv.app import NameServer

    stop = runtime.stop_signal()
    async with AsyncExitStack() as servers:
        names = await servers.enter_async_context(NameServer(config))
        output.echo(f"name server ready at {names.address}")
        if controller is not None:
            output.echo(f"controller ready at {await embed_controller(servers, names, controller)}")
        await runtime.serve_until(stop)


async def embed_controller(
    servers: AsyncExitStack, names: "NameServer", config: ControllerConfig
) -> str:
    """Start a controller in the process of a name server, whose metrics page says if it leads.

    Returns its address.
    """
    from roquet.controller.app import ControllerServer
    from roquet.controller.controller_metrics import add_leadership

    try:
        server = await servers.enter_async_context(ControllerServer(config))
    except ConfigError as error:  # here the name server has --port
        raise ConfigError(str(error).replace("--port", "--controller-port")) from None
    if names.exporter is not None:
        names.exporter.add_source(partial(add_leadership, server.controller))
    return server.address


class NameServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one process."""

    namesrv: NameServerConfig
    controller: ControllerConfig | None
    """None: there is no controller in it."""


def name_server_settings(
    path: Path | None, options: Mapping[str, Any], controller: Mapping[str, Any]
) -> NameServerSettings:
    """The settings of a file and of options, which win; None is an option that was not given."""
    source = str(path)
    values, tls = take_tls(read_file(path) if path else {}, source)
    ours = {key: text for key, text in values.items() if not _is_controllers(key)}
    chosen = {"tls": tls.server, "calls": tls.calls, **given(options)}
    namesrv = msgspec.structs.replace(read_settings(ours, source), **chosen)
    wanted = parse_bool(values.get(EMBEDDED_CONTROLLER, "false"), EMBEDDED_CONTROLLER)
    if not wanted and controller.get("store") is None:
        if controller.get("port") is not None:
            raise UsageError("--controller-port is of no use without --controller")
        return NameServerSettings(namesrv=namesrv, controller=None)
    theirs = {key: text for key, text in values.items() if _is_controllers(key)}
    if CONTROLLER_PORT in theirs:
        theirs["listenPort"] = theirs.pop(CONTROLLER_PORT)
    loaded = read_controller_settings(theirs, source)
    host = controller.get("host") or namesrv.host
    shared = {"host": host, "tls": namesrv.tls, "calls": namesrv.calls}
    embedded = configured(loaded, {**controller, **shared})
    return NameServerSettings(namesrv=namesrv, controller=embedded)


def _is_controllers(key: str) -> bool:
    """Whether a key of a common file is the controller's alone."""
    is_known = key in SETTINGS or key in UNUSED or key == CONTROLLER_PORT
    return is_known and not (key in KEYS or key in NAME_SERVER_UNUSED or key in EXPORTER_SETTINGS)
