"""RuntimeSettings: the settings of a running broker, and their subscribers.

    names and values ──▶ checked ──▶ the broker's file ──▶ in force ──▶ subscribers
                            │ all or none    │ or nothing

A part that copies a value for speed subscribes to its changes; others read `config` each time.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from roquet.broker.refusals import invalid_parameter, no_permission, system_error
from roquet.broker.settings.apache_settings import check_unused_setting, unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.config_file import rewrite_properties
from roquet.broker.settings.definitions import SETTINGS, setting_of
from roquet.broker.settings.value_formats import HIDDEN
from roquet.log_records import logger
from roquet.model.errors import ConfigError, StoreError
from roquet.model.topic import DataVersion
from roquet.store.filesystem.files import Files, RealFiles

log = logger(__name__)

BLACK_LIST: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys that cannot be changed over the network, as in the genuine broker."""

RequestedSettings = dict[str, tuple[str, str]]
"""Maps our setting name to the (key, value) pair as the operator wrote it."""

SettingsCheck = Callable[[BrokerConfig, BrokerConfig], str | None]
"""From the settings in force and the new ones: why these cannot be in force; None when they can."""

SettingsListener = Callable[[BrokerConfig], object]
"""Called with the settings that are in force from now on."""


class RuntimeSettings:
    """The settings in force."""

    def __init__(self, config: BrokerConfig, files: Files | None = None) -> None:
        self.config = config
        self.version = DataVersion()
        self.checks: list[SettingsCheck] = []
        self._listeners: list[tuple[frozenset[str], SettingsListener]] = []
        self._files = files or RealFiles()
        self._warned = set(config.unused)
        """Settings without effect that were warned of: those of the file when it was read."""

    def subscribe(self, listener: SettingsListener, *names: str) -> None:
        """Call back when one of these settings has changed; without names, when any has."""
        self._listeners.append((frozenset(names), listener))

    def change(self, wanted: Mapping[str, str], now_ms: int) -> bool:
        """Change settings, by Apache's keys or ours: all of them or, raising CallRefused, none.

        They are written to the broker's file. Returns whether any setting has changed.
        """
        requested, values = self._wanted(wanted)
        try:
            config = msgspec.structs.replace(self.config, **values)
        except ConfigError as error:  # each value is legal, but not beside the others
            raise invalid_parameter(str(error)) from error
        if config == self.config:
            return False
        for check in self.checks:
            if (fault := check(self.config, config)) is not None:
                raise invalid_parameter(fault)
        self._keep(requested)
        before, self.config = self.config, config
        self.version = self.version.next(now_ms)
        self._warn(requested)
        log.info("settings changed: %s", ", ".join(f"{k}={v}" for k, v in requested.values()))
        for names, listener in self._listeners:
            if not names or any(getattr(before, n) != getattr(config, n) for n in names):
                self._tell(listener)
        return True

    def _wanted(self, wanted: Mapping[str, str]) -> tuple[RequestedSettings, dict[str, Any]]:
        requested: RequestedSettings = {}
        values: dict[str, Any] = {}
        unused = dict(self.config.unused)
        for key, value in wanted.items():
            if key in unused_settings():
                if self._is_other(key, value):
                    requested[key], unused[key] = (key, value), value
            elif (change := self._parse_change(key, value)) is not None:
                name, values[name] = change
                requested[name] = (key, value)
        return requested, values | {"unused": unused}

    def _is_other(self, key: str, value: str) -> bool:
        """Whether the value of a setting without effect changes.

        CallRefused for an illegal value.
        """
        _check_text(key, value)
        try:
            check_unused_setting(key, value)
        except ConfigError as error:
            raise invalid_parameter(str(error)) from error
        return value != self.config.unused.get(key, unused_settings()[key].default)

    def _warn(self, requested: RequestedSettings) -> None:
        for key in sorted(requested.keys() & unused_settings().keys() - self._warned):
            self._warned.add(key)
            reason = unused_settings()[key].reason
            log.warning("%s=%s has no effect here. %s", key, requested[key][1], reason)

    def _parse_change(self, key: str, value: str) -> tuple[str, Any] | None:
        """Our name and the value of a setting that changes; None if it does not.

        CallRefused if illegal.
        """
        _check_text(key, value)
        try:
            name, parse = setting_of(key, f"{key}={value}")
            parsed = parse(value, key)
        except ConfigError as error:
            raise invalid_parameter(str(error)) from error
        if name is None or parsed == self._in_force(name):
            return None
        if SETTINGS[name].needs_restart:
            shown = HIDDEN if SETTINGS[name].is_secret else value
            raise invalid_parameter(
                f"{key}={shown}: it cannot change while the broker runs; restart it with that"
            )
        return name, parsed

    def _in_force(self, name: str) -> object:
        if name == "log_path":  # it follows from store_dir
            return self.config.store_dir and self.config.store_dir / "commitlog"
        return getattr(self.config, name)

    def _keep(self, requested: RequestedSettings) -> None:
        """Write the changes to the broker's file, so that a restart keeps them."""
        if (path := self.config.source) is None:
            return
        try:
            text = self._files.read(path).decode()
            self._files.replace(path, rewrite_properties(text, requested).encode(), keep=True)
        except (OSError, UnicodeDecodeError, StoreError) as error:
            raise system_error(f"{path} does not take the settings: {error}") from error

    def _tell(self, listener: SettingsListener) -> None:
        try:
            listener(self.config)
        except StoreError as error:  # a failed table is saved later
            log.warning("the settings are changed, but not all is saved: %s", error)


def _check_text(key: str, value: str) -> None:
    """CallRefused for a key of the black list, or a value of several lines."""
    if key in BLACK_LIST:
        raise no_permission("Can not update config in black list.")
    if not value.isprintable() or value.endswith("\\"):
        raise invalid_parameter(f"{key}={value!r}: a value is one line of printable characters")
