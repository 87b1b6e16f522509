"""Settings of the name server: read from a properties file, and changed at run time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from roquet.log_records import logger
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import CallRefused, ConfigError
from roquet.model.settings import parse_bool, parse_int, suggest
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.kv_store import FILE
from roquet.namesrv.state import NameServerState
from roquet.net.router import Peer
from roquet.observe.log_levels import apply_log_levels, check_log_levels
from roquet.wire.call import Reply
from roquet.wire.calls.admin.namesrv import GetNameServerSettings, UpdateNameServerSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.properties_file import requested_settings, write_properties

log = logger(__name__)

KEYS: Final = {
    "listenPort": "port",
    "bindAddress": "host",
    "scanNotActiveBrokerInterval": "scan_ms",
    "orderMessageEnable": "order_messages",
    "enableAllTopicList": "all_topics",
    "deleteTopicWithBrokerRegistration": "whole_registrations",
    "supportActingMaster": "show_acting_master",
    "notifyMinBrokerIdChanged": "notify_lowest_id",
    "logLevels": "log_levels",
}
"""Keys of our settings: Apache's, and logLevels."""

CHANGEABLE: Final = frozenset(
    {
        "order_messages",
        "all_topics",
        "whole_registrations",
        "show_acting_master",
        "notify_lowest_id",
        "log_levels",
    }
)
"""Settings that are read at each use; the others are read at the start."""

BLACK_LIST: Final = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
"""Keys that cannot be changed over the network, as on genuine name servers: they name files."""

EMBEDDED_CONTROLLER: Final = "enableControllerInNamesrv"
"""Whether a controller runs in the same process: decided by whoever starts both."""

KV_PATH: Final = "kvConfigPath"

UNUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clientRequestThreadPoolNums": "1",
        "clientRequestThreadPoolQueueCapacity": "50000",
        "clusterTest": "false",
        "defaultThreadPoolNums": "1",
        "defaultThreadPoolQueueCapacity": "10000",
        "enableControllerInNamesrv": "false",
        "enableShutdownGracefully": "false",
        "enableTopicList": "true",
        "needWaitForService": "false",
        "productEnvName": "center",
        "returnOrderTopicConfigToBroker": "true",
        "serverAsyncSemaphoreValue": "64",
        "serverCallbackExecutorThreads": "1",
        "serverChannelMaxIdleTimeSeconds": "120",
        "serverNettyWorkerGroupEnable": "true",
        "serverOnewaySemaphoreValue": "256",
        "serverPooledByteBufAllocatorEnable": "true",
        "serverSelectorThreads": "3",
        "serverSocketBacklog": "1024",
        "serverSocketRcvBufSize": "0",
        "serverSocketSndBufSize": "0",
        "serverWorkerThreads": "1",
        "shutdownWaitTimeSeconds": "30",
        "unRegisterBrokerQueueCapacity": "3000",
        "useEpollNativeSelector": "false",
        "waitSecondsForService": "45",
        "writeBufferHighWaterMark": "0",
        "writeBufferLowWaterMark": "0",
    }
)
"""Settings of genuine name servers (5.5.0) without effect here, and their defaults. Thread counts,
which depend on the machine there, are 1 for the one event loop."""


def settings(state: NameServerState, _call: GetNameServerSettings, _peer: Peer) -> Reply:
    """All settings that Apache's tools know."""
    values = {**UNUSED, "rocketmqHome": "", "configStorePath": ""}
    values |= {key: _text(getattr(state.config, name)) for key, name in KEYS.items()}
    values |= state.config.unused
    values["configBlackList"] = ";".join(BLACK_LIST[:-1])
    directory = state.config.directory
    values["kvConfigPath"] = str(directory / FILE) if directory else ""
    return Reply(body=write_properties(values).encode())


def update(state: NameServerState, call: UpdateNameServerSettings, peer: Peer) -> Reply:
    """Change settings until the next start: all of the requested ones, or none."""
    requested = requested_settings(call.body, BLACK_LIST)
    before, state.config = state.config, _changed(state.config, requested)
    if state.config.log_levels != before.log_levels:
        apply_log_levels(state.config.log_levels)
    log.info("%s changes settings: %s", peer.address, requested)
    return Reply()


def _changed(config: NameServerConfig, requested: dict[str, str]) -> NameServerConfig:
    """The settings with the requested ones.

    Unknown keys are ignored, as on genuine name servers. Keys that only those know are kept and
    returned by queries, with a warning the first time.
    """
    news: dict[str, Any] = {}
    unused = {key: text for key, text in requested.items() if key in UNUSED}
    for key, text in unused.items():
        if key not in config.unused and text != UNUSED[key]:
            log.warning("%s=%s has no effect here", key, text)
    for key, text in requested.items():
        name = KEYS.get(key)
        if name in CHANGEABLE:
            try:
                news[name] = _parser(name)(text, key)
            except ConfigError as error:
                raise CallRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        elif name is not None and text != _text(getattr(config, name)):
            raise CallRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{key} is read at the start: it cannot be changed now",
            )
    return replace(config, **news, unused={**config.unused, **unused})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_settings(values: Mapping[str, str], source: str) -> NameServerConfig:
    """The settings of a file; `source` names it in errors. Raises ConfigError.

    Keys without effect are kept, with a warning if they differ from their defaults.
    """
    found: dict[str, Any] = {}
    unused: dict[str, str] = {}
    for key, value in values.items():
        where = f"{source}: {key}"
        if (exporter := EXPORTER_SETTINGS.get(key)) is not None:
            found[exporter.name] = exporter.parse(value, where)
        elif key in KEYS:
            found[KEYS[key]] = _parser(KEYS[key])(value, where)
        elif key == KV_PATH:
            found["directory"] = _directory(value, where)
        elif key in UNUSED or key in BLACK_LIST:
            unused[key] = value
            if key != EMBEDDED_CONTROLLER and value != UNUSED.get(key, value):
                log.warning("%s=%s has no effect here", where, value)
        else:
            known = (*KEYS, *EXPORTER_SETTINGS, *UNUSED)
            raise ConfigError(f"{where}: no such setting of a name server{suggest(key, known)}")
    return NameServerConfig(**found, unused=unused)


def _parser(name: str) -> Callable[[str, str], Any]:
    if name == "log_levels":
        return check_log_levels
    default = getattr(NameServerConfig(), name)
    if isinstance(default, bool):
        return parse_bool
    return _number if isinstance(default, int) else _as_written


def _number(text: str, where: str) -> int:
    return parse_int(text, where, least=0)


def _as_written(text: str, _where: str) -> str:
    return text


def _directory(text: str, where: str) -> Path:
    path = Path(text)
    if path.name != FILE:
        raise ConfigError(f"{where}: the file is called {FILE} here, not {path.name!r}")
    return path.parent
