"""Settings format: settings written as text, by Apache's keys and ours, as they are read again."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import FIXED, SETTINGS
from roquet.broker.settings.value_formats import HIDDEN, HOUR_MS, SettingParser
from roquet.model.errors import ConfigError

TEXTS_MAX: Final = 2_000
"""Texts of values that are kept: those of several brokers in one process."""


@lru_cache(TEXTS_MAX, typed=True)
def apache_text(name: str, value: object) -> str:
    """A setting's value as the genuine broker writes it, in a unit that reads back unchanged."""
    setting = SETTINGS[name]
    if (write := setting.format.write_apache) is not None:
        return write(value)
    text, parse = _plain(value), setting.parse_apache
    if isinstance(value, int) and not isinstance(value, bool):
        texts = (str(value // unit_ms) for unit_ms in (1, 1_000, 60_000, HOUR_MS))
        return next((text for text in texts if _reads(parse, text) == value), text)
    return text


@lru_cache(TEXTS_MAX, typed=True)
def own_text(name: str, value: object) -> str:
    """A setting's value as we write it; times have a unit, and secrets are hidden."""
    if SETTINGS[name].is_secret:
        return HIDDEN
    if isinstance(value, tuple):
        return apache_text(name, value)
    text = _plain(value)
    return f"{text}ms" if _reads(SETTINGS[name].parse, text) is None else text


def all_settings(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """All settings with a value, by Apache's keys; by ours where Apache has none.

    Apache's settings without effect here are included as given, or with their defaults.
    """
    yield from ((key, fixed.value) for key, fixed in FIXED.items() if fixed.value is not None)
    yield from _unused(config).items()
    for name, setting in SETTINGS.items():
        value = getattr(config, name, None)
        if value is None:
            # Apache's tools expect these keys; an empty text reads back as none.
            yield from ((key, "") for key in setting.apache_keys if setting.is_secret)
            continue
        for key in setting.apache_keys[:1]:
            yield key, apache_text(name, value)
        if not setting.apache_keys:
            yield name, own_text(name, value)


def _unused(config: BrokerConfig) -> dict[str, str]:
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
