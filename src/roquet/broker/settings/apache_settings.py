"""Apache settings without effect: every other key of its broker.conf, its default, and the reason.

`apache-settings.txt` in this folder has a heading for each reason, and below it a line
`key=default`, or the key alone where the default depends on the machine.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import ConfigError

FILE: Final = "apache-settings.txt"

_TRUTHS: Final = frozenset({"true", "false"})


class UnusedSetting(msgspec.Struct, frozen=True):
    """One setting of Apache RocketMQ without effect here."""

    reason: str
    """Why it has no effect, in one sentence."""
    default: str | None = None
    """The default of Apache's broker; None if it depends on the machine."""


@cache
def unused_settings() -> Mapping[str, UnusedSetting]:
    """All settings without effect, by key."""
    return parse_unused_settings(Path(__file__).with_name(FILE).read_text("ascii"))


def parse_unused_settings(text: str) -> dict[str, UnusedSetting]:
    """Parse the file: `## reason` lines, each followed by keys with their defaults."""
    found, reason = dict[str, UnusedSetting](), ""
    for line in text.splitlines():
        if line.startswith("## "):
            reason = line[3:]
        elif line and not line.startswith("#"):
            key, equals, default = line.partition("=")
            found[key] = UnusedSetting(reason, default if equals else None)
    return found


def check_unused_setting(key: str, value: str) -> None:
    """ConfigError for a value that is not of the default's type: boolean, number or text."""
    default = unused_settings()[key].default
    if default in _TRUTHS and value.lower() not in _TRUTHS:
        raise ConfigError(f"{key}: {value!r} is neither true nor false")
    if default is not None and _is_number(default) and not _is_number(value):
        raise ConfigError(f"{key}: {value!r} is not a number")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()
