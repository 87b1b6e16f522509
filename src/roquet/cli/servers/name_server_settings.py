"""Settings of `roquet namesrv`: of the name server, and of a controller in the same process.

One file has the keys of both, as with Apache's name server. `listenPort` is the name server's; the
controller's is `controllerListenPort`, a key of ours. One process has one page of metrics, the name
server's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.cli.servers.controller_settings import configured, read_file
from roquet.controller.config import ControllerConfig
from roquet.controller.settings import SETTINGS, UNUSED
from roquet.controller.settings import read_settings as read_controller_settings
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import UsageError
from roquet.model.settings import parse_bool
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.handlers.settings import EMBEDDED_CONTROLLER, KEYS, read_settings
from roquet.namesrv.handlers.settings import UNUSED as NAME_SERVER_UNUSED
from roquet.net.tls_properties import take_tls

CONTROLLER_PORT: Final = "controllerListenPort"


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
    given = {"tls": tls.server, "calls": tls.calls, **_given(options)}
    namesrv = msgspec.structs.replace(read_settings(ours, source), **given)
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
    chosen = configured(loaded, {**controller, **shared})
    return NameServerSettings(namesrv=namesrv, controller=chosen)


def _is_controllers(key: str) -> bool:
    """Whether a key of a common file is the controller's alone."""
    is_known = key in SETTINGS or key in UNUSED or key == CONTROLLER_PORT
    return is_known and not (key in KEYS or key in NAME_SERVER_UNUSED or key in EXPORTER_SETTINGS)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
