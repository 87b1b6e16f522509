"""SinkOptions: what a user said of a write.

frame.write.format("roquet").mode("append").options(namesrv="…", topic="orders").save()
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from roquet.client.config import resolve_name_servers
from roquet.model.errors import ConfigError
from roquet.model.names import can_clients_send_to, check_group, check_topic
from roquet.model.settings import parse_addresses, parse_bool, parse_bytes, parse_millis
from roquet.spark.kafka_names import OPTIONS, hint

GROUP: Final = "roquet-spark-sink"
"""The producer group. Nobody else's: a producer of it would be asked about our half messages."""

TIMEOUT_MS: Final = 60_000
"""How long a broker may be away, starting again for example, before a write gives up."""

BATCH_BYTES: Final = 1024 * 1024
"""Of one request, as the broker stores it: larger ones are no faster, and others wait behind."""

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024 - 64 * 1024
"""What a broker at its defaults stores at one time, less what it adds itself."""

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""What brokers take at their defaults (maxMessageSize)."""

JOB_PREFIX: Final = "job-"
"""What the names of batch writes begin with that nobody named: such a one never comes again."""

TRANSACTION_TIME_MS: Final = 10 * 60_000
"""For how long brokers leave half messages alone: longer than most micro-batches take."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user said of a write. Times are in ms, sizes in bytes."""

    namesrv: tuple[str, ...]
    topic: str | None = None
    """None takes it from the column of that name."""
    group: str = GROUP
    timeout_ms: int = TIMEOUT_MS
    batch_bytes: int = BATCH_BYTES
    body_bytes_max: int = BODY_BYTES_MAX
    ignores_others: bool = False
    """Whether columns that no message has are passed over."""
    job: str | None = None
    """The name of a batch write: written again under it, rows have the same keys."""
    transactional: bool = False
    transaction_time_ms: int = TRANSACTION_TIME_MS
    commits: str | None = None
    """The directory of the commit records."""


def parse(options: Mapping[str, str], environ: Mapping[str, str]) -> SinkOptions:
    """The settings of Spark's options; an option that there is not is named, with the right one."""
    known = {name.lower(): name for name in _READERS}
    found: dict[str, Any] = {}
    for given, text in options.items():
        if given.lower() in _SPARK_OPTIONS:
            continue
        name = known.get(given.lower())
        if name is None:
            raise ConfigError(f"no option {given!r} of a write{hint(given, _READERS, OPTIONS)}")
        field, read = _READERS[name]
        found[field] = read(text, name)
    found.setdefault(
        "namesrv", resolve_name_servers(None, environ) if environ.get(_VARIABLE) else None
    )
    if found["namesrv"] is None:
        raise ConfigError("option 'namesrv' is missing: .option('namesrv', '127.0.0.1:9876')")
    settings = SinkOptions(**found)
    if settings.transactional and settings.commits is None:
        checkpoint = {name.lower(): text for name, text in options.items()}.get(_CHECKPOINT)
        return msgspec.structs.replace(settings, commits=_beside_checkpoint(checkpoint))
    return settings


def _beside_checkpoint(checkpoint: str | None) -> str:
    """The directory of the commit records of a query with this checkpoint."""
    if checkpoint is None:
        raise ConfigError(
            "transactional=true keeps a record of each commit: say .option('commits', DIRECTORY), "
            "or for a stream .option('checkpointLocation', DIRECTORY) where it then is"
        )
    return f"{_directory(checkpoint, 'checkpointLocation').rstrip('/')}/roquet-commits"


def _directory(text: str, name: str) -> str:
    """The path of a directory that this machine sees as one."""
    parts = urlsplit(text.strip())
    if parts.scheme and parts.scheme != "file":
        raise ConfigError(
            f"{name}: {text!r} is no directory of this machine: say .option('commits', DIRECTORY), "
            "one that the driver finds again wherever it is restarted"
        )
    path = parts.path if parts.scheme else text.strip()
    if not path:
        raise ConfigError(f"option {name!r} is empty")
    return path


def _topic(text: str, name: str) -> str:
    topic = text.strip()
    if not topic:
        raise ConfigError(f"option {name!r} is empty")
    if not can_clients_send_to(check_topic(topic)):
        raise ConfigError(f"topic {topic} is the broker's own: nobody else may send to it")
    return topic


def _group(text: str, _name: str) -> str:
    return check_group(text.strip())


def _job(text: str, name: str) -> str:
    if not text.strip() or not text.isprintable() or "/" in text or text.startswith(JOB_PREFIX):
        raise ConfigError(
            f"{name}: {text!r} is no name: it may not be empty, hold a slash or begin with job-"
        )
    return text.strip()


def _batch_bytes(text: str, name: str) -> int:
    size = parse_bytes(text, name)
    if not 1024 <= size <= BATCH_BYTES_MAX:
        raise ConfigError(f"{name}: {text!r} is not between 1KiB and {BATCH_BYTES_MAX} bytes")
    return size


def _ignores_others(text: str, name: str) -> bool:
    if text.strip().lower() not in ("error", "ignore"):
        raise ConfigError(f"{name}: {text!r} is neither error nor ignore")
    return text.strip().lower() == "ignore"


def _seconds(text: str, name: str) -> int:
    time_ms = parse_millis(text, name)
    if time_ms < 1_000:
        raise ConfigError(f"{name}: {text!r} is less than a second, which brokers count in")
    return time_ms


_VARIABLE: Final = "NAMESRV_ADDR"
_CHECKPOINT: Final = "checkpointlocation"
_SPARK_OPTIONS: Final = frozenset({_CHECKPOINT, "queryname"})
"""What Spark hands over besides: a stream's own options."""

_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "namesrv": ("namesrv", parse_addresses),
        "topic": ("topic", _topic),
        "group": ("group", _group),
        "timeout": ("timeout_ms", parse_millis),
        "batchBytes": ("batch_bytes", _batch_bytes),
        "maxMessageSize": ("body_bytes_max", parse_bytes),
        "otherColumns": ("ignores_others", _ignores_others),
        "job": ("job", _job),
        "transactional": ("transactional", parse_bool),
        "transactionTime": ("transaction_time_ms", _seconds),
        "commits": ("commits", _directory),
    }
)
"""Every option: the setting it is, and how its text is read."""
