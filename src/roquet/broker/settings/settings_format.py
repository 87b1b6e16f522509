"""Settings format: settings written as text, by Apache's keys and ours, as they are read again."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import ENTRY_SIZE, SETTINGS, SettingParser
from roquet.model.errors import ConfigError

HOUR_MS: Final = 3_600_000

UNITS: Final = ((24 * HOUR_MS, "d"), (HOUR_MS, "h"), (60_000, "m"), (1_000, "s"))
"""Units of delay levels, the longest first."""

SettingWriter = Callable[[Any], str]

APACHE_FORMATS: Final[Mapping[str, SettingWriter]] = {
    "name_servers": ";".join,
    "sync_flush": lambda is_sync: "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
    "message_delay_levels": lambda levels: " ".join(map(_level, levels)),
    "queue_file_entries": lambda count: str(count * ENTRY_SIZE),
    "retention": lambda ms: str(ms // HOUR_MS),
    "delete_hour": lambda hour: f"{hour:02d}",
    "memory_share": lambda ratio: str(round(ratio * 100)),
    "expire_ratio": lambda ratio: str(round(ratio * 100)),
    "force_ratio": lambda ratio: str(round(ratio * 100)),
    "refuse_ratio": lambda ratio: str(round(ratio * 100)),
}
"""Writers of settings whose text for Apache is not just the value."""

FIXED: Final[Mapping[str, str]] = {
    "aclEnable": "false",
    "authenticationEnabled": "false",
    "authorizationEnabled": "false",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
}
"""Apache's settings with one fixed value here; its tools read some of them."""


def apache_text(name: str, value: object) -> str:
    """A setting's value as the genuine broker writes it, in a unit that reads back unchanged."""
    if (write := APACHE_FORMATS.get(name)) is not None:
        return write(value)
    text, setting = _plain(value), SETTINGS[name]
    if isinstance(value, int) and not isinstance(value, bool):
        parse = setting.parse_apache or setting.parse
        texts = (str(value // unit_ms) for unit_ms in (1, 1_000, 60_000, HOUR_MS))
        return next((text for text in texts if _reads(parse, text) == value), text)
    return text


def own_text(name: str, value: object) -> str:
    """A setting's value as we write it; times have a unit."""
    if name in ("name_servers", "message_delay_levels"):
        return apache_text(name, value)
    text = _plain(value)
    return f"{text}ms" if _reads(SETTINGS[name].parse, text) is None else text


def all_settings(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """All settings with a value, by Apache's keys; by ours where Apache has none.

    Apache's settings without effect here are included as given, or with their defaults.
    """
    yield from FIXED.items()
    yield from _unused(config).items()
    for name, setting in SETTINGS.items():
        value = getattr(config, name, None)
        if value is None:
            continue
        for key in setting.apache_keys[:1]:
            yield key, apache_text(name, value)
        if not setting.apache_keys:
            yield name, own_text(name, value)


def _unused(config: BrokerConfig) -> dict[str, str]:
    """Settings without effect, as given or by default."""
    texts = {k: s.default for k, s in unused_settings().items() if s.default is not None}
    if config.source is not None:
        texts["brokerConfigPath"] = str(config.source)
    return texts | dict(config.unused)


def _reads(parse: SettingParser, text: str) -> object:
    """The value that a text is parsed as; None if it cannot be."""
    try:
        return parse(text, "")
    except ConfigError:
        return None


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _level(ms: int) -> str:
    unit_ms, unit = next((unit for unit in UNITS if ms % unit[0] == 0), UNITS[-1])
    return f"{ms // unit_ms}{unit}"
