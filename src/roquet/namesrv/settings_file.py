"""Settings file of a name server: a properties file with Apache's keys."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from roquet.log_records import logger
from roquet.metrics.exporter_settings import EXPORTER_SETTINGS
from roquet.model.errors import ConfigError
from roquet.model.settings import parse_bool, parse_int, suggest
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.handlers.settings import BLACK_LIST, KEYS, UNUSED
from roquet.namesrv.kv_store import FILE
from roquet.observe.log_levels import check_log_levels

log = logger(__name__)

EMBEDDED_CONTROLLER: Final = "enableControllerInNamesrv"
"""Whether a controller runs in the same process: decided by whoever starts both."""

KV_PATH: Final = "kvConfigPath"


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
    return _number if isinstance(default, int) else _text


def _number(text: str, where: str) -> int:
    return parse_int(text, where, least=0)


def _text(text: str, _where: str) -> str:
    return text


def _directory(text: str, where: str) -> Path:
    path = Path(text)
    if path.name != FILE:
        raise ConfigError(f"{where}: the file is called {FILE} here, not {path.name!r}")
    return path.parent
