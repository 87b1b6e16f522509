"""Live: the settings of a running broker, replaced as one, and told to whom they concern.

    names and values ──▶ judged ──▶ the broker's file ──▶ in force
                            │ all or none    │ or nothing

A value that somebody holds for speed is set anew through `on_change`; all others look at
`Broker.config` each time.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec

from roquet.broker.settings.apache_settings import check_unused_setting, unused_settings
from roquet.broker.settings.config import BrokerConfig, lines
from roquet.broker.settings.definitions import CHECKED, OWN_NAMES, SETTINGS, apache_keys
from roquet.broker.settings.settings_format import FIXED
from roquet.log_records import logger
from roquet.model.errors import CallRefused, ConfigError, StoreError
from roquet.model.settings import suggest
from roquet.model.topic import DataVersion
from roquet.store.filesystem.files import Files, RealFiles
from roquet.wire.codes import ResponseCode

log = logger(__name__)

CHANGEABLE: Final = frozenset(
    {
        "ack_capacity",
        "ack_wait_max",
        "admin_capacity",
        "admin_wait_max",
        "auto_create_group",
        "auto_create_topic",
        "client_silence",
        "default_pop_share_queues",
        "default_request_mode",
        "delete_hour",
        "expire_ratio",
        "fast_failure",
        "flush_interval",
        "force_ratio",
        "free_min",
        "heartbeat_capacity",
        "heartbeat_wait_max",
        "long_polling",
        "max_message_size",
        "memory_share",
        "name_servers",
        "notify_members",
        "permission",
        "property_filter",
        "pull_bytes_disk",
        "pull_bytes_memory",
        "pull_capacity",
        "pull_count_disk",
        "pull_count_memory",
        "pull_wait_max",
        "query_capacity",
        "query_count_max",
        "read_internal_topics",
        "recall_key_with_topic",
        "recall_message",
        "refuse_ratio",
        "region",
        "register_interval",
        "reject_transactions",
        "retention",
        "save_interval",
        "send_capacity",
        "send_wait_max",
        "server_side_reset",
        "short_polling",
        "sql_compatibility",
        "store_reply_messages",
        "sync_flush",
        "sync_flush_timeout",
        "timer_max_delay",
        "trace_on",
        "transaction_capacity",
        "transaction_check_interval",
        "transaction_check_max",
        "transaction_op_interval",
        "transaction_op_size",
        "transaction_timeout",
        "transaction_wait_max",
    }
)
"""What may change while the broker runs. Names, addresses, files and delay levels may not: what is
stored, or what others hold, was made by them."""

BLACK_LIST: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys that nobody may change from afar: the genuine broker's."""

RequestedSettings = dict[str, tuple[str, str]]
"""By our name of a setting: the key and the value in the words of who sets it."""

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
        """Settings without effect of which it was said: those of the file, when it was read."""

    def subscribe(self, listener: SettingsListener, *names: str) -> None:
        """Call back when one of these settings has changed; without names, when any has."""
        self._listeners.append((frozenset(names), listener))

    def change(self, wanted: Mapping[str, str], now_ms: int) -> bool:
        """Take settings in genuine words or in ours: all of them or, raising CallRefused, none.

        The broker's file says them afterwards. Tells whether anything is another now.
        """
        given, values = self._wanted(wanted)
        config = msgspec.structs.replace(self.config, **values)
        if config == self.config:
            return False
        for check in self.checks:
            if (fault := check(self.config, config)) is not None:
                _refuse(fault)
        self._keep(given)
        before, self.config = self.config, config
        self.version = self.version.next(now_ms)
        self._warn(given)
        log.info("settings changed: %s", ", ".join(f"{k}={v}" for k, v in given.values()))
        for names, listener in self._listeners:
            if not names or any(getattr(before, n) != getattr(config, n) for n in names):
                self._tell(listener)
        return True

    def _wanted(self, wanted: Mapping[str, str]) -> tuple[RequestedSettings, dict[str, Any]]:
        """What is to change: as it was given, and by the fields of the settings."""
        given: RequestedSettings = {}
        values: dict[str, Any] = {}
        unused = dict(self.config.unused)
        for key, value in wanted.items():
            if key in unused_settings():
                if self._is_other(key, value):
                    given[key], unused[key] = (key, value), value
            elif (found := self._judged(key, value)) is not None:
                name, values[name] = found
                given[name] = (key, value)
        return given, values | {"unused": unused}

    def _is_other(self, key: str, value: str) -> bool:
        """Whether a setting without effect is told otherwise; CallRefused: it cannot be so."""
        _check_text(key, value)
        try:
            check_unused_setting(key, value)
        except ConfigError as error:
            _refuse(str(error))
        return value != self.config.unused.get(key, unused_settings()[key].default)

    def _warn(self, given: RequestedSettings) -> None:
        """Say it once of each setting that it has no effect."""
        for key in sorted(given.keys() & unused_settings().keys() - self._warned):
            self._warned.add(key)
            reason = unused_settings()[key].reason
            log.warning("%s=%s has no effect here. %s", key, given[key][1], reason)

    def _judged(self, key: str, value: str) -> tuple[str, Any] | None:
        """Our name and the value of what changes something; CallRefused: it cannot be."""
        _check_text(key, value)
        try:
            found = _read(key, value)
        except ConfigError as error:
            _refuse(str(error))
        if found is None:
            return None
        name, parsed = found
        if parsed == self._in_force(name):
            return None
        if name not in CHANGEABLE:
            _refuse(f"{key}={value}: it cannot change while the broker runs; restart it with that")
        return found

    def _in_force(self, name: str) -> object:
        if name == "log_path":  # it is where it is, by the directory of everything
            return self.config.store_dir and self.config.store_dir / "commitlog"
        return getattr(self.config, name)

    def _keep(self, given: RequestedSettings) -> None:
        """Have the broker's file say it: whoever restarts the broker must not lose it."""
        if (path := self.config.source) is None:
            return
        try:
            text = self._files.read(path).decode()
            self._files.replace(path, rewrite_properties(text, given).encode(), keep=True)
        except (OSError, UnicodeDecodeError, StoreError) as error:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"{path} does not take the settings: {error}"
            ) from error

    def _tell(self, listener: SettingsListener) -> None:
        try:
            listener(self.config)
        except StoreError as error:  # a table that cannot be saved now is saved later
            log.warning("the settings are changed, but not all is saved: %s", error)


def _read(key: str, value: str) -> tuple[str, Any] | None:
    """Our name of a setting and its value; None when that says what is so anyway."""
    ours = key.replace("-", "_")
    if (setting := SETTINGS.get(ours)) is not None:
        return ours, setting.parse(value, key)
    if (name := OWN_NAMES.get(key)) is not None:
        setting = SETTINGS[name]
        return name, (setting.parse_apache or setting.parse)(value, key)
    if (check := CHECKED.get(key)) is not None:
        check(value, key)
        return None
    if FIXED.get(key) == value:
        return None
    hint = suggest(key, [*SETTINGS, *apache_keys()])
    raise ConfigError(f"{key}={value}: unknown here and in Apache RocketMQ{hint}")


def _check_text(key: str, value: str) -> None:
    """CallRefused for a key that nobody may change from afar, or a value of several lines."""
    if key in BLACK_LIST:
        raise CallRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    if not value.isprintable() or value.endswith("\\"):
        _refuse(f"{key}={value!r}: a value is one line of printable characters")


def _refuse(remark: str) -> NoReturn:
    raise CallRefused(ResponseCode.INVALID_PARAMETER, remark)


def rewrite_properties(text: str, given: Mapping[str, tuple[str, str]]) -> str:
    """A properties file that says other values: where it said them before, or else at its end."""
    left, found = dict(given), list[str]()
    for piece in reversed(list(_pieces(text))):
        key = next((key for _, key, _ in lines(piece)), "")
        name = OWN_NAMES.get(key, key.replace("-", "_"))
        # Of several lines for one setting the last one counts.
        found.append(_line(left.pop(name)) if name in left else piece)
    found.reverse()
    if found and left and not found[-1].endswith("\n"):
        found[-1] += "\n"
    return "".join([*found, *map(_line, left.values())])


def _line(given: tuple[str, str]) -> str:
    key, value = given
    return f"{key}={value}\n"


def _pieces(text: str) -> Iterator[str]:
    """The lines of a file, those together of which one goes on in the next."""
    piece = ""
    for line in text.splitlines(keepends=True):
        piece += line
        if not line.strip().endswith("\\"):
            yield piece
            piece = ""
    if piece:
        yield piece
