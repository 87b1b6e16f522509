"""Value formats: how the value of a setting is read, and written for Apache RocketMQ.

Our times and sizes carry a unit (500ms, 1GiB); Apache's are the bare numbers that Java reads.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from roquet.access.gaps import parse_gaps, write_gaps
from roquet.metrics.exporter_settings import check_labels, parse_exporter_type
from roquet.model import settings
from roquet.model.errors import ConfigError
from roquet.model.topic import READ_WRITE
from roquet.net.tls import ClientAuth, KeyPassword, TlsMode
from roquet.observe.log_levels import check_log_levels
from roquet.rules.access.patterns import parse_sources
from roquet.rules.delay.delay_levels import parse_levels
from roquet.rules.delay.timer import DAY_MS, MAX_DELAY_LIMIT_MS, PRECISION_MS
from roquet.rules.quota import parse_quotas, write_quotas
from roquet.rules.replication.acknowledgement import BrokerRole, ReplicaAck
from roquet.wire.calls.bodies import POP, PULL
from roquet.wire.codes import RequestCode
from roquet.wire.frame import LOG_BODY_SIZE_MAX
from roquet.wire.signing import Credentials

PORT: Final = 10_911

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""The longest frame that Java peers accept."""

FRAME_HEADROOM: Final = 1024 * 1024
"""Bytes of a frame reserved for the header with its properties."""

REGION_LENGTH_MAX: Final = 255
"""Characters of a region's name, which every message carries."""

ENTRY_SIZE: Final = 20
"""Bytes of one queue entry: Apache's settings count a queue's file in bytes."""

HOUR_MS: Final = 3_600_000

HEARTBEAT_TIMEOUT_MS_MIN: Final = 1_000
"""Shortest silence after which a broker may be taken for dead: shorter ones are pauses of a machine
that lives, and would have another master elected again and again."""

ACCESS_CODES: Final = frozenset(range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))
"""Requests that manage users and policies."""

HIDDEN: Final = "******"
"""Shown in the place of a secret."""

UNITS: Final = ((24 * HOUR_MS, "d"), (HOUR_MS, "h"), (60_000, "m"), (1_000, "s"))
"""Units of delay levels, the longest first."""

E = TypeVar("E", bound=StrEnum)

SettingParser = Callable[[str, str], Any]
"""Parses (value, its place in the file); raises ConfigError."""

SettingWriter = Callable[[Any], str]
"""Formats a value."""


class ValueFormat(msgspec.Struct, frozen=True):
    """Format of a setting's value: the parser for our key, and what differs for Apache's."""

    parse: SettingParser
    parse_apache: SettingParser | None = None
    """None if Apache's key reads as ours does."""
    write_apache: SettingWriter | None = None
    """None if Apache's text is the value itself, in a unit that `parse_apache` reads back."""


class Setting(msgspec.Struct, frozen=True):
    """One setting: the format of its value, Apache's keys, and whether a change needs a restart."""

    format: ValueFormat
    apache_keys: tuple[str, ...] = ()
    """Apache's keys, of which the first is written."""
    needs_restart: bool = False
    """Whether it cannot change while the broker runs, since it is read at the start only: names,
    addresses, files and delay levels, on which stored messages and other processes depend."""

    @property
    def is_secret(self) -> bool:
        """Whether the value is never shown: not in settings, errors or logs."""
        return self.format in (CREDENTIALS, KEY_PASSWORD)

    def parse(self, text: str, where: str) -> Any:
        """Parse the value of our key. Raises ConfigError."""
        return self.format.parse(text, where)

    def parse_apache(self, text: str, where: str) -> Any:
        """Parse the value of one of Apache's keys. Raises ConfigError."""
        return (self.format.parse_apache or self.format.parse)(text, where)


def setting(format_: ValueFormat, *apache_keys: str) -> Setting:
    """Define a setting; for the annotation of its field in `BrokerConfig`."""
    return Setting(format_, apache_keys)


def static(format_: ValueFormat, *apache_keys: str) -> Setting:
    """Define a setting that changes with a restart alone."""
    return Setting(format_, apache_keys, needs_restart=True)


def _text(value: str, where: str) -> str:
    if not value:
        raise ConfigError(f"{where}: a value is wanted")
    return value


def _region(value: str, where: str) -> str:
    if not value.isprintable() or len(_text(value, where)) > REGION_LENGTH_MAX:
        raise ConfigError(
            f"{where}: {value[:40]!r} is no region: up to {REGION_LENGTH_MAX} printable characters"
        )
    return value


def _path(value: str, where: str) -> Path:
    text = _text(value, where).replace("${user.home}", "~")
    return Path(text).expanduser()


_natural: Final = partial(settings.parse_int, least=0)


def _at_most(most: int, complaint: str, parse: SettingParser = _natural) -> SettingParser:
    """A parser of numbers up to `most`; the complaint formats the text ({0}) and number ({1})."""

    def check(value: str, where: str) -> int:
        number: int = parse(value, where)
        if number > most:
            raise ConfigError(f"{where}: {complaint.format(value, number)}")
        return number

    return check


def _advertise(value: str, where: str) -> str:
    settings.parse_address(value, where, port=PORT)
    return value.strip()


def _servers(value: str, where: str) -> tuple[str, ...]:
    return settings.parse_addresses(value, where) if value else ()


def _number(value: str, where: str, *, least: int = 1, factor: int = 1) -> int:
    """A bare number, as Java reads it; `factor` converts it to our unit."""
    return settings.parse_int(value, where, least=least) * factor


def _heartbeat_timeout(value: int, where: str) -> int:
    if value < HEARTBEAT_TIMEOUT_MS_MIN:
        raise ConfigError(
            f"{where}: {value} ms is too short, the smallest is {HEARTBEAT_TIMEOUT_MS_MIN} ms: a "
            "machine that pauses for a moment would lose its role"
        )
    return value


def _percent(value: str, where: str) -> float:
    percent = settings.parse_int(value, where, least=1)
    if percent > 100:
        raise ConfigError(f"{where}: {percent} is no percentage")
    return percent / 100


def _ratio(value: str, where: str) -> float:
    try:
        ratio = float(value)
    except ValueError:
        raise ConfigError(f"{where}: {value!r} is not a number between 0 and 1") from None
    if not 0 < ratio <= 1:
        raise ConfigError(f"{where}: {value!r} is not between 0 and 1")
    return ratio


def _flush_type(value: str, where: str) -> bool:
    if value not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ConfigError(f"{where}: {value!r} is neither ASYNC_FLUSH nor SYNC_FLUSH")
    return value == "SYNC_FLUSH"


def _request_mode(value: str, where: str) -> str:
    if value not in (PULL, POP):
        raise ConfigError(f"{where}: {value!r} is neither {PULL} nor {POP}")
    return value


def _message_size(value: str, where: str) -> int:
    size = settings.parse_bytes(value, where)
    if not 0 < size <= FRAME_SIZE_MAX - FRAME_HEADROOM:
        raise ConfigError(f"{where}: {value!r} does not fit a frame: 15MiB is the most")
    return size


def _queue_entries(value: str, where: str) -> int:
    return -(-settings.parse_int(value, where, least=ENTRY_SIZE) // ENTRY_SIZE)


def _bytes(value: str, where: str) -> int:
    if (size := settings.parse_bytes(value, where)) < 1:
        raise ConfigError(f"{where}: {value!r} is too small")
    return size


def _register_interval(value: int, _where: str) -> int:
    # The genuine broker keeps it within these bounds, too: name servers forget after 120 s.
    return max(10_000, min(value, 60_000))


def _max_delay(value: int, where: str) -> int:
    if not PRECISION_MS <= value <= MAX_DELAY_LIMIT_MS:
        days = MAX_DELAY_LIMIT_MS // DAY_MS
        raise ConfigError(f"{where}: delivery times may be 1 s to {days} days away, not {value} ms")
    return value


def _one_of(kind: type[E], *, any_case: bool = False) -> SettingParser:
    def parse(value: str, where: str) -> E:
        text = value.lower() if any_case else value
        if text not in frozenset(kind):
            raise ConfigError(f"{where}: {value!r} is none of {', '.join(kind)}")
        return kind(text)

    return parse


def _stream_address(value: str, where: str) -> str | None:
    return settings.join_address(*settings.parse_address(value, where)) if value else None


class _CredentialsText(msgspec.Struct, rename="camel"):
    """Credentials as Apache's settings give them: a user with a password, or keys."""

    username: str = ""
    password: str = ""
    access_key: str = ""
    secret_key: str = ""


def _credentials(value: str, where: str) -> Credentials | None:
    """Credentials of a JSON text; an empty one is None. Errors do not repeat the text."""
    if not value:
        return None
    try:
        found = msgspec.json.decode(value, type=_CredentialsText)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = _CredentialsText()
    name, secret = found.username or found.access_key, found.password or found.secret_key
    if not name.strip() or not secret.strip():
        raise ConfigError(
            f'{where.partition("=")[0]}: wanted is {{"username":"…","password":"…"}} or '
            '{"accessKey":"…","secretKey":"…"}'
        )
    return Credentials(access_key=name, secret_key=secret)


def _request_codes(value: str, where: str) -> tuple[int, ...]:
    """Request codes with commas between them. Those of users and policies are never open."""
    codes = tuple(
        settings.parse_int(text.strip(), where, least=0)
        for text in value.split(",") if text.strip()
    )  # fmt: skip
    if managing := sorted(set(codes) & ACCESS_CODES):
        raise ConfigError(
            f"{where}: {managing[0]} manages users and policies: nobody may do that unchecked"
        )
    return codes


def _checked_millis(check: Callable[[int, str], int], *, factor: int = 1) -> ValueFormat:
    """A time that `check` takes or corrects; Apache's numbers count `factor` ms each."""
    return ValueFormat(
        lambda value, where: check(settings.parse_millis(value, where), where),
        lambda value, where: check(_number(value, where, factor=factor), where),
    )


def _level(ms: int) -> str:
    unit_ms, unit = next((unit for unit in UNITS if ms % unit[0] == 0), UNITS[-1])
    return f"{ms // unit_ms}{unit}"


TEXT: Final = ValueFormat(_text)
PATH: Final = ValueFormat(_path)
SWITCH: Final = ValueFormat(settings.parse_bool)
COUNT: Final = ValueFormat(_number)
BYTES: Final = ValueFormat(_bytes)
RATIO: Final = ValueFormat(_ratio, _percent, lambda ratio: str(round(ratio * 100)))
MILLIS: Final = ValueFormat(settings.parse_millis, _number)
HOURS: Final = ValueFormat(
    settings.parse_millis, partial(_number, factor=HOUR_MS), lambda ms: str(ms // HOUR_MS)
)
HOUR: Final = ValueFormat(
    _at_most(23, "{0!r} is no hour of a day: 00 to 23"), None, lambda hour: f"{hour:02d}"
)
REGION: Final = ValueFormat(_region)
PORT_NUMBER: Final = ValueFormat(_at_most(65_535, "{1} is no port, the highest is 65535"))
ADDRESS: Final = ValueFormat(_advertise)
ADDRESSES: Final = ValueFormat(_servers, None, ";".join)
FLUSH_TYPE: Final = ValueFormat(
    settings.parse_bool, _flush_type, lambda is_sync: "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH"
)
MESSAGE_SIZE: Final = ValueFormat(_message_size)
DELAY_LEVELS: Final = ValueFormat(parse_levels, None, lambda levels: " ".join(map(_level, levels)))
DELIVERY_DELAY: Final = _checked_millis(_max_delay, factor=1_000)
REGISTER_INTERVAL: Final = _checked_millis(_register_interval)
HEARTBEAT_TIMEOUT: Final = _checked_millis(_heartbeat_timeout)
REQUEST_MODE: Final = ValueFormat(_request_mode)
POP_SHARE: Final = ValueFormat(partial(settings.parse_int, least=-1))
PERMISSION: Final = ValueFormat(
    _at_most(READ_WRITE, "{0!r} is none of 2 (write), 4 (read), 6 (both), 0")
)
BROKER_ROLE: Final = ValueFormat(_one_of(BrokerRole))
ELECTION_PRIORITY: Final = ValueFormat(_natural)
BROKER_ID: Final = ValueFormat(_natural)
REPLICA_ACK: Final = ValueFormat(_one_of(ReplicaAck))
METRICS_EXPORTER: Final = ValueFormat(parse_exporter_type)
METRIC_LABELS: Final = ValueFormat(check_labels)
INTERFACE: Final = ValueFormat(lambda value, _where: value)
STREAM_ADDRESS: Final = ValueFormat(_stream_address)
LOG_LEVELS: Final = ValueFormat(check_log_levels)
BATCH_SIZE: Final = ValueFormat(
    _at_most(
        LOG_BODY_SIZE_MAX, f"{{0!r}} is over {LOG_BODY_SIZE_MAX}, which no replica reads", _bytes
    )
)
CREDENTIALS: Final = ValueFormat(_credentials, None, lambda _: HIDDEN)
KEY_PASSWORD: Final = ValueFormat(
    lambda value, _where: KeyPassword(value) if value else None, None, lambda _: HIDDEN
)
TLS_MODE: Final = ValueFormat(_one_of(TlsMode, any_case=True))
CLIENT_AUTH: Final = ValueFormat(_one_of(ClientAuth, any_case=True))
ACCESS_GAPS: Final = ValueFormat(parse_gaps, None, write_gaps)
SOURCES: Final = ValueFormat(parse_sources, None, ",".join)
REQUEST_CODES: Final = ValueFormat(_request_codes, None, lambda codes: ",".join(map(str, codes)))
QUOTAS: Final = ValueFormat(parse_quotas, None, write_quotas)
QUEUE_ENTRIES: Final = ValueFormat(_number, _queue_entries, lambda count: str(count * ENTRY_SIZE))
