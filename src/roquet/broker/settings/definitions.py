"""Definitions: every key of broker.conf, ours and Apache's, and how its value is parsed.

Our times and sizes carry a unit (500ms, 1GiB); Apache's are the bare numbers that Java reads.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.broker.settings.apache_settings import unused_settings
from roquet.model import settings
from roquet.model.errors import ConfigError
from roquet.model.topic import MASTER_ID, READ_WRITE
from roquet.rules.delay.delay_levels import parse_levels
from roquet.rules.delay.timer import DAY_MS, MAX_DELAY_LIMIT_MS, PRECISION_MS
from roquet.wire.calls.bodies import POP, PULL

PORT: Final = 10_911

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""The longest frame that Java peers accept."""

FRAME_HEADROOM: Final = 1024 * 1024
"""Bytes of a frame reserved for the header with its properties."""

REGION_LENGTH_MAX: Final = 255
"""Characters of a region's name, which every message carries."""

ENTRY_SIZE: Final = 20
"""Bytes of one queue entry: Apache's settings count a queue's file in bytes."""

SettingParser = Callable[[str, str], Any]
"""Parses (value, its place in the file); raises ConfigError."""


class Setting(msgspec.Struct, frozen=True):
    """One setting: the parser of our key, and Apache's keys with their parser."""

    parse: SettingParser
    apache_keys: tuple[str, ...] = ()
    parse_apache: SettingParser | None = None


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


def _port(value: str, where: str) -> int:
    port = settings.parse_int(value, where, least=0)
    if port > 65_535:
        raise ConfigError(f"{where}: {port} is no port, the highest is 65535")
    return port


def _advertise(value: str, where: str) -> str:
    settings.parse_address(value, where, port=PORT)
    return value.strip()


def _servers(value: str, where: str) -> tuple[str, ...]:
    return settings.parse_addresses(value, where) if value else ()


def _number(value: str, where: str, *, least: int = 1, factor: int = 1) -> int:
    """A bare number, as Java reads it; `factor` converts it to our unit."""
    return settings.parse_int(value, where, least=least) * factor


def _hour(value: str, where: str) -> int:
    hour = settings.parse_int(value, where, least=0)
    if hour > 23:
        raise ConfigError(f"{where}: {value!r} is no hour of a day: 00 to 23")
    return hour


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


def _permission(value: str, where: str) -> int:
    permission = settings.parse_int(value, where, least=0)
    if permission > READ_WRITE:
        raise ConfigError(f"{where}: {value!r} is none of 2 (write), 4 (read), 6 (both), 0")
    return permission


def _register_interval(value: int) -> int:
    # The genuine broker keeps it within these bounds, too: name servers forget after 120 s.
    return max(10_000, min(value, 60_000))


def _max_delay(value: int, where: str) -> int:
    if not PRECISION_MS <= value <= MAX_DELAY_LIMIT_MS:
        days = MAX_DELAY_LIMIT_MS // DAY_MS
        raise ConfigError(f"{where}: delivery times may be 1 s to {days} days away, not {value} ms")
    return value


def _must_lead(value: str, where: str) -> None:
    if settings.parse_int(value, where) != MASTER_ID:
        raise ConfigError(f"{where}: only 0 works: this broker keeps no replica of another")


def _must_be_alone(value: str, where: str) -> None:
    if value != "ASYNC_MASTER":
        raise ConfigError(f"{where}: only ASYNC_MASTER works: nothing is replicated, not {value!r}")


def _must_be_off(value: str, where: str) -> None:
    if settings.parse_bool(value, where):
        raise ConfigError(
            f"{where}: only false works: no broker here keeps users and their rights, and it would "
            "be open to everybody; secure it by TLS and certificates (tls_client_ca)"
        )


_MILLIS: Final = _number
_switch: Final[SettingParser] = settings.parse_bool

SETTINGS: Final[Mapping[str, Setting]] = {
    "broker_name": Setting(_text, ("brokerName",)),
    "cluster_name": Setting(_text, ("brokerClusterName",)),
    "host": Setting(_text, ("bindAddress",)),
    "port": Setting(_port, ("listenPort",)),
    "vip_port": Setting(_switch),
    "advertise": Setting(_advertise, ("brokerIP1",)),
    "name_servers": Setting(_servers, ("namesrvAddr",)),
    "store_dir": Setting(_path, ("storePathRootDir",)),
    "log_path": Setting(_path, ("storePathCommitLog",)),
    "sync_flush": Setting(_switch, ("flushDiskType",), _flush_type),
    "sync_flush_timeout": Setting(settings.parse_millis, ("syncFlushTimeout",), _MILLIS),
    "flush_interval": Setting(settings.parse_millis, ("flushIntervalCommitLog",), _MILLIS),
    "auto_create_topic": Setting(_switch, ("autoCreateTopicEnable",)),
    "auto_create_group": Setting(_switch, ("autoCreateSubscriptionGroup",)),
    "default_queue_count": Setting(_number, ("defaultTopicQueueNums",)),
    "max_message_size": Setting(_message_size, ("maxMessageSize",)),
    "message_delay_levels": Setting(parse_levels, ("messageDelayLevel",)),
    "long_polling": Setting(_switch, ("longPollingEnable",)),
    "short_polling": Setting(settings.parse_millis, ("shortPollingTimeMills",), _MILLIS),
    "notify_members": Setting(_switch, ("notifyConsumerIdsChangedEnable",)),
    "default_request_mode": Setting(_request_mode, ("defaultMessageRequestMode",)),
    "default_pop_share_queues": Setting(
        partial(settings.parse_int, least=-1), ("defaultPopShareQueueNum",)
    ),
    "property_filter": Setting(_switch, ("enablePropertyFilter",)),
    "sql_compatibility": Setting(_switch),
    "trace_topic": Setting(_switch, ("traceTopicEnable",)),
    "store_reply_messages": Setting(_switch, ("storeReplyMessageEnable",)),
    "reject_transactions": Setting(_switch, ("rejectTransactionMessage",)),
    "transaction_timeout": Setting(settings.parse_millis, ("transactionTimeOut",), _MILLIS),
    "transaction_check_interval": Setting(
        settings.parse_millis, ("transactionCheckInterval",), _MILLIS
    ),
    "transaction_check_max": Setting(_number, ("transactionCheckMax",)),
    "transaction_op_interval": Setting(
        settings.parse_millis, ("transactionOpBatchInterval",), _MILLIS
    ),
    "transaction_op_size": Setting(_bytes, ("transactionOpMsgMaxSize",)),
    "timer_max_delay": Setting(
        lambda value, where: _max_delay(settings.parse_millis(value, where), where),
        ("timerMaxDelaySec",),
        lambda value, where: _max_delay(_number(value, where, factor=1_000), where),
    ),
    "recall_message": Setting(_switch, ("recallMessageEnable",)),
    "permission": Setting(_permission, ("brokerPermission",)),
    "region": Setting(_region, ("regionId",)),
    "trace_on": Setting(_switch, ("traceOn",)),
    "read_internal_topics": Setting(_switch),
    "pull_count_memory": Setting(_number, ("maxTransferCountOnMessageInMemory",)),
    "pull_bytes_memory": Setting(_bytes, ("maxTransferBytesOnMessageInMemory",)),
    "pull_count_disk": Setting(_number, ("maxTransferCountOnMessageInDisk",)),
    "pull_bytes_disk": Setting(_bytes, ("maxTransferBytesOnMessageInDisk",)),
    "memory_share": Setting(_ratio, ("accessMessageInMemoryMaxRatio",), _percent),
    "query_count_max": Setting(_number, ("maxMsgsNumBatch",)),
    "recall_key_with_topic": Setting(_switch, ("appendTopicForTimerDeleteKey",)),
    "save_interval": Setting(settings.parse_millis, ("flushConsumerOffsetInterval",), _MILLIS),
    "register_interval": Setting(
        lambda value, where: _register_interval(settings.parse_millis(value, where)),
        ("registerNameServerPeriod",),
        lambda value, where: _register_interval(_MILLIS(value, where)),
    ),
    "client_silence": Setting(settings.parse_millis, ("channelExpiredTimeout",), _MILLIS),
    "log_file_size": Setting(_bytes, ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")),
    "queue_file_entries": Setting(
        _number, ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"), _queue_entries
    ),
    "index_slots": Setting(_number, ("maxHashSlotNum",)),
    "index_entries": Setting(_number, ("maxIndexNum",)),
    "retention": Setting(
        settings.parse_millis, ("fileReservedTime",), partial(_number, factor=3_600_000)
    ),
    "delete_hour": Setting(_hour, ("deleteWhen",)),
    "expire_ratio": Setting(_ratio, ("diskMaxUsedSpaceRatio",), _percent),
    "force_ratio": Setting(_ratio, ("diskSpaceCleanForciblyRatio",), _percent),
    "refuse_ratio": Setting(_ratio, ("diskSpaceWarningLevelRatio",), _percent),
    "free_min": Setting(_bytes),
    "send_capacity": Setting(_number, ("sendThreadPoolQueueCapacity",)),
    "pull_capacity": Setting(_number, ("pullThreadPoolQueueCapacity",)),
    "ack_capacity": Setting(_number, ("ackThreadPoolQueueCapacity",)),
    "heartbeat_capacity": Setting(_number, ("heartbeatThreadPoolQueueCapacity",)),
    "transaction_capacity": Setting(_number, ("endTransactionPoolQueueCapacity",)),
    "query_capacity": Setting(_number, ("queryThreadPoolQueueCapacity",)),
    "admin_capacity": Setting(_number, ("adminBrokerThreadPoolQueueCapacity",)),
    "fast_failure": Setting(_switch, ("brokerFastFailureEnable",)),
    "send_wait_max": Setting(settings.parse_millis, ("waitTimeMillsInSendQueue",), _MILLIS),
    "pull_wait_max": Setting(settings.parse_millis, ("waitTimeMillsInPullQueue",), _MILLIS),
    "ack_wait_max": Setting(settings.parse_millis, ("waitTimeMillsInAckQueue",), _MILLIS),
    "heartbeat_wait_max": Setting(
        settings.parse_millis, ("waitTimeMillsInHeartbeatQueue",), _MILLIS
    ),
    "transaction_wait_max": Setting(
        settings.parse_millis, ("waitTimeMillsInTransactionQueue",), _MILLIS
    ),
    "admin_wait_max": Setting(settings.parse_millis, ("waitTimeMillsInAdminBrokerQueue",), _MILLIS),
    "tls_cert": Setting(_path, ("tls.server.certPath",)),
    "tls_key": Setting(_path, ("tls.server.keyPath",)),
    "tls_client_ca": Setting(_path),
    "tls_ca": Setting(_path),
    "server_side_reset": Setting(_switch, ("useServerSideResetOffset",)),
}
"""Every setting with an effect. `log_path` is only compared with the actual path of the log."""

OWN_NAMES: Final = {key: name for name, setting in SETTINGS.items() for key in setting.apache_keys}
"""Our setting names by Apache's keys."""

CHECKED: Final[Mapping[str, Callable[[str, str], None]]] = {
    "brokerId": _must_lead,
    "brokerRole": _must_be_alone,
    "aclEnable": _must_be_off,
    "enableAcl": _must_be_off,
    "authenticationEnabled": _must_be_off,
    "authorizationEnabled": _must_be_off,
}
"""Apache's keys for which only one value is accepted here."""


def apache_keys() -> frozenset[str]:
    """Every key of the genuine broker."""
    return frozenset({*unused_settings(), *OWN_NAMES, *CHECKED})
