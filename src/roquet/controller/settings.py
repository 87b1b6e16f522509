"""Settings of controllers: Apache's keys, read from a properties file and changed at run time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.controller.config import ControllerConfig
from roquet.log_records import logger
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import ConfigError
from roquet.model.settings import parse_bool, parse_int, suggest
from roquet.observe.log_levels import check_log_levels

log = logger(__name__)

LEASE_SETTING_MS_MIN: Final = 1_000
"""Shortest lease of a file: four heartbeats in it, of which two may be lost, come 250 ms apart."""


class ControllerSetting(msgspec.Struct, frozen=True):
    """A key and the field that it sets."""

    name: str
    parse: Callable[[str, str], Any]
    """Value from its text; the second argument names the key in errors."""
    is_changeable: bool = False
    """Whether it can be changed while the controller runs."""


def _number(text: str, key: str) -> int:
    return parse_int(text, key, least=0)


def _lease(text: str, key: str) -> int:
    """Length of a lease; shorter ones are for simulations, which set them in `ControllerConfig`."""
    if (lease_ms := parse_int(text, key, least=0)) < LEASE_SETTING_MS_MIN:
        raise ConfigError(
            f"{key}: a lease of {lease_ms} ms is too short, the smallest is "
            f"{LEASE_SETTING_MS_MIN} ms: a master that pauses for a moment would stop taking "
            "messages"
        )
    return lease_ms


def _text(text: str, _key: str) -> str:
    return text


def _path(text: str, _key: str) -> Path | None:
    return Path(text) if text else None


def _directory(text: str, _key: str) -> str:
    return f"file:{text}"


SETTINGS: Final[Mapping[str, ControllerSetting]] = MappingProxyType(
    {
        "listenPort": ControllerSetting("port", _number),
        "bindAddress": ControllerSetting("host", _text),
        "controllerDLegerGroup": ControllerSetting("controllers", _text),
        "controllerDLegerSelfId": ControllerSetting("controller_id", _text),
        "controllerStorePath": ControllerSetting("store", _directory),
        "enableElectUncleanMaster": ControllerSetting("elect_unclean_master", parse_bool, True),
        "notifyBrokerRoleChanged": ControllerSetting("notify_role_changes", parse_bool, True),
        "scanNotActiveBrokerInterval": ControllerSetting("scan_ms", _number, True),
        "controllerAdvertise": ControllerSetting("advertise", _text),
        "controllerStore": ControllerSetting("store", _text),
        "controllerLeaseMillis": ControllerSetting("lease_ms", _lease),
        "controllerAccessFile": ControllerSetting("access_file", _path),
        "controllerAccessCluster": ControllerSetting("access_cluster", _text),
        "logLevels": ControllerSetting("log_levels", check_log_levels, True),
        **{key: ControllerSetting(*setting) for key, setting in EXPORTER_SETTINGS.items()},
    }
)
"""Settings by key. Ours are controllerAdvertise, controllerStore, controllerLeaseMillis,
controllerAccessFile, controllerAccessCluster and logLevels. Of two keys for one setting the later
line wins."""

PEERS: Final = "controllerDLegerPeers"

UNUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "controllerRequestThreadPoolQueueCapacity": "50000",
        "controllerThreadPoolNums": "16",
        "controllerType": "DLedger",
        PEERS: "",
        "elecMasterMaxRetryCount": "3",
        "enableControllerInNamesrv": "false",
        "isProcessReadEvent": "false",
        "jRaftControllerRPCAddr": "",
        "jRaftGroupId": "jraft-Controller",
        "jRaftInitConf": "",
        "jRaftServerId": "",
        "jRaftSnapshotIntervalSecs": "3600",
        "mappedFileSize": "1073741824",
        "scanInactiveMasterInterval": "5000",
    }
)
"""Settings of Apache's controllers without effect here, and their defaults."""

BLACK_LIST: Final = ("configBlackList", "configStorePath", "rocketmqHome")
"""Keys that cannot be changed over the network, as on Apache's controllers."""


def read_settings(values: Mapping[str, str], source: str) -> ControllerConfig:
    """The settings of a properties file; `source` names it in errors. Raises ConfigError.

    Keys without effect are kept, with a warning if they differ from their defaults.
    """
    found: dict[str, Any] = {}
    unused: dict[str, str] = {}
    for key, value in values.items():
        where = f"{source}: {key}"
        if key in SETTINGS:
            found[SETTINGS[key].name] = SETTINGS[key].parse(value, where)
        elif key in UNUSED or key in BLACK_LIST:
            warn_of_no_effect(where, key, value)
            unused[key] = value
        else:
            known = (*SETTINGS, *UNUSED)
            raise ConfigError(f"{where}: no such setting of a controller{suggest(key, known)}")
    return ControllerConfig(**found, unused=unused)


def warn_of_no_effect(where: str, key: str, value: str) -> None:
    """Warn of a setting that has no effect here, if it is not the default."""
    if key == PEERS:
        log.warning(
            "%s has no effect: controllers here do not talk to each other; two or more share an "
            "etcd (--store etcd:HOST:PORT)",
            where,
        )
    elif key in UNUSED and value != UNUSED[key]:
        log.warning("%s=%s has no effect here", where, value)


def changed_settings(config: ControllerConfig, requested: Mapping[str, str]) -> ControllerConfig:
    """The settings with the requested changes: all of them, or ConfigError.

    Unknown keys are ignored, as on Apache's controllers.
    """
    changes: dict[str, Any] = {}
    unused = {key: value for key, value in requested.items() if key in UNUSED}
    for key, value in unused.items():
        warn_of_no_effect(key, key, value)
    for key, value in requested.items():
        setting = SETTINGS.get(key)
        if setting is None:
            continue
        parsed = setting.parse(value, key)
        if parsed == getattr(config, setting.name):
            continue
        if not setting.is_changeable:
            raise ConfigError(f"{key} is read at the start: it cannot be changed now")
        changes[setting.name] = parsed
    return msgspec.structs.replace(config, **changes, unused={**config.unused, **unused})


def shown_settings(config: ControllerConfig) -> dict[str, str]:
    """All settings by key, as text."""
    values = {**UNUSED, "rocketmqHome": "", "configStorePath": ""}
    values |= {key: _shown(getattr(config, one.name)) for key, one in SETTINGS.items()}
    values["controllerStorePath"] = config.store.partition("file:")[2]
    values |= config.unused
    values["configBlackList"] = ";".join(BLACK_LIST)
    return values


def _shown(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
