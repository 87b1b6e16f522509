"""roquet namesrv: starts a name server, and a controller with it; roquet namesrv settings, set.

One file has the settings of both, as with Apache's name server. `listenPort` is the name server's;
the controller's is `controllerListenPort`, a key of ours. One process has one page of metrics, the
name server's.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.cli.command_options import As, option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.process import runtime
from roquet.cli.servers.controller import configured, read_file
from roquet.cli.servers.server_options import (
    HOST,
    LoadBalancerOptions,
    SecurityOptions,
    any_port,
    given,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import ChangesArgument, change_line, parse_changes
from roquet.controller.config import ControllerConfig
from roquet.controller.settings import SETTINGS, UNUSED
from roquet.controller.settings import read_settings as read_controller_settings
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import ConfigError, RoquetError, UsageError
from roquet.model.settings import parse_bool, suggest
from roquet.namesrv.config import PORT, NameServerConfig
from roquet.namesrv.handlers.settings import (
    BLACK_LIST,
    CHANGEABLE,
    EMBEDDED_CONTROLLER,
    KEYS,
    read_settings,
)
from roquet.namesrv.handlers.settings import UNUSED as NAME_SERVER_UNUSED
from roquet.net.tls_properties import take_tls

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.namesrv.app import NameServer

CONTROLLER_PORT: Final = "controllerListenPort"

FIXED_NOTE: Final = "   (read at the start)"


class NameServerOptions(SecurityOptions, LoadBalancerOptions):
    """Options of `roquet namesrv`."""

    port: int | None = any_port(PORT)
    host: str | None = HOST
    data: Path | None = option(
        "Where key-value settings are; else memory.", gives=As("directory"), metavar="DIR"
    )
    config: Path | None = settings_file("A namesrv.conf, with Apache's keys.")
    controller: str | None = option(
        "Run a controller, too, with its state in file:DIR, etcd:HOST:PORT[,...].", metavar="STORE"
    )
    controller_port: int | None = option("The controller's port, 9878 by default.", metavar="N")


def start_name_server(options: NameServerOptions) -> None:
    """Start a name server, and a controller in the same process if that is asked for."""
    settings = {**options.fields_of(NameServerConfig), **options.tls, **options.exporter}
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
    from roquet.controller.app import ControllerServer, add_leadership

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


app: Final = CommandGroup("namesrv", no_args_is_help=False)
app.callback(invoke_without_command=True)(start_name_server)


@app.command()
async def settings(
    admin: "AdminClient",
    unused: bool = option("Also Apache's settings that have no effect on them.", "--all"),
) -> Result:
    """Show the settings of the name servers, and which of them may change while they run."""
    from roquet.admin import name_servers
    from roquet.admin.client import failures_text

    found, failed = await name_servers.settings(admin)
    servers = []
    for address, values in found.items():
        shown = values if unused or not _is_ours(values) else _effective(values)
        changeable = [key for key in shown if may_change(values, key)]
        servers.append({"name_server": address, "settings": shown, "changeable": changeable})
    error = RoquetError(failures_text(failed)) if failed else None
    return Result(json=servers, text=_setting_lines(servers), error=error)


def _setting_lines(servers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for server in servers:
        yield server["name_server"]
        for key, value in server["settings"].items():
            note = "" if key in server["changeable"] else FIXED_NOTE
            yield f"  {key} = {value}{note}".rstrip()


@app.command("set")
async def set_settings(
    admin: "AdminClient", approval: Approval, changes: ChangesArgument
) -> Result:
    """Change settings of running name servers, all of them alike, until each one's next start."""
    from roquet.admin import name_servers
    from roquet.admin.client import failures_text

    wanted = parse_changes(changes, KEYS)
    found, failed = await name_servers.settings(admin)
    if failed:
        raise RoquetError(f"nothing was changed, since not all answer: {failures_text(failed)}")
    keys = {key: setting_key(found, key) for key in wanted}
    rows = [
        {"name_server": address, "key": key, "now": values.get(keys[key]), "then": then}
        for address, values in found.items()
        for key, then in wanted.items()
    ]
    where = f"{output.quantity(len(found), 'name server')} until the next start"
    question = f"Change {output.quantity(len(wanted), 'setting')} of {where}?"
    if await approval.ask([change_line(str(row["name_server"]), row) for row in rows], question):
        await name_servers.configure(admin, {keys[key]: then for key, then in wanted.items()})
    return approval.result(rows, f"{', '.join(found)}: changed until the next start")


def setting_key(servers: Mapping[str, Mapping[str, str]], key: str) -> str:
    """The key on the wire of a setting, named in Roquet's or in RocketMQ's words.

    Raises UsageError for one that some server lacks, which it would silently ignore, or that does
    not change while it runs.
    """
    own = {name: apache for apache, name in KEYS.items()}
    known = own.get(key, key)
    for address, values in servers.items():
        if known not in values:
            hint = suggest(key, [*values, *(own if _is_ours(values) else ())])
            raise UsageError(f"{address} has no setting {key!r}{hint}")
        if not may_change(values, known):
            raise UsageError(f"{address} reads {key} at its start: it cannot be changed now")
    return known


def may_change(values: Mapping[str, str], key: str) -> bool:
    """Whether a name server with these settings lets one of them change while it runs."""
    if key in BLACK_LIST:
        return False
    return not _is_ours(values) or KEYS.get(key) in CHANGEABLE


def _is_ours(values: Mapping[str, str]) -> bool:
    """Whether a name server reports a setting that Apache RocketMQ does not have."""
    return "logLevels" in values


def _effective(values: Mapping[str, str]) -> dict[str, str]:
    files = {key for key in BLACK_LIST if values.get(key) and key != "configBlackList"}
    without = (NAME_SERVER_UNUSED.keys() | frozenset(BLACK_LIST)) - files
    return {key: value for key, value in values.items() if key not in without}
