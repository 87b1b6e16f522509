"""Log levels: from text, as `WARNING` or `INFO,roquet.net:DEBUG`, to the package's loggers."""

import logging
from collections.abc import Mapping
from typing import Final

from roquet.model.errors import ConfigError

PACKAGE: Final = "roquet"

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

_changed: Final[set[str]] = set()
"""Loggers whose level was set here."""


def parse_log_levels(text: str, where: str) -> Mapping[str, str]:
    """Level by logger; a level alone is that of the whole package. Raises ConfigError."""
    levels: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, level = part.rpartition(":")
        name = name.strip() if colon else PACKAGE
        if level.strip().upper() not in LEVELS:
            raise ConfigError(f"{where}: {level.strip()[:40]!r} is none of {', '.join(LEVELS)}")
        if name != PACKAGE and not name.startswith(f"{PACKAGE}."):
            raise ConfigError(f"{where}: {name[:40]!r} is no logger of {PACKAGE}, as roquet.net is")
        levels[name] = level.strip().upper()
    return levels


def check_log_levels(text: str, where: str) -> str:
    """The text itself, if it can be read. Raises ConfigError."""
    parse_log_levels(text, where)
    return text


def apply_log_levels(text: str) -> None:
    """Set the levels of loggers; those that an earlier call set go back to their parents'."""
    levels = parse_log_levels(text, "log levels")
    for name in _changed - levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    _changed.clear()
    _changed.update(levels)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
