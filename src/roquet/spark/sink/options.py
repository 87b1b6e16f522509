"""SinkOptions: the options of a write, parsed from Spark's strings, and the columns of its frame.

frame.write.format("roquet").mode("append").options(namesrv="…", topic="orders").save()
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from roquet.client.config import resolve_name_servers
from roquet.lake.kafka_names import COLUMNS, OPTIONS, hint
from roquet.lake.objects.object_location import PROVIDERS
from roquet.model.errors import ConfigError
from roquet.model.names import can_clients_send_to, check_group, check_topic
from roquet.model.settings import parse_addresses, parse_bool, parse_bytes, parse_millis
from roquet.spark.access_options import ACCESS_OPTIONS, AccessOptions, nonempty, take_access

GROUP: Final = "roquet-spark-sink"
"""The default producer group. Use it for nothing else: brokers would ask other producers of the
group about our half messages."""

TIMEOUT_MS: Final = 60_000
"""How long a write waits for a broker that is away, restarting for example."""

BATCH_BYTES: Final = 1024 * 1024
"""Default size of one request as stored: larger ones are no faster, and delay the next ones."""

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024 - 64 * 1024
"""Largest request that a broker with default settings stores, less what it adds itself."""

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest body that brokers accept by default (maxMessageSize)."""

JOB_PREFIX: Final = "job-"
"""Prefix of the generated names of batch writes, which are never written again."""

TRANSACTION_TIME_MS: Final = 10 * 60_000
"""Default time before brokers check a half message: longer than most micro-batches take."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a write. Times are in ms, sizes in bytes."""

    namesrv: tuple[str, ...]
    """Name servers, `a:9876;b:9876`; those of the environment variable NAMESRV_ADDR without it."""
    topic: str | None = None
    """The topic of all rows; that of column `topic` without it."""
    group: str = GROUP
    """The producer group. No other producer may be in it: brokers would ask it about our half
    messages."""
    timeout_ms: int = TIMEOUT_MS
    """How long name servers and brokers may be away or busy before the write fails. After two
    seconds a warning says what is waited for."""
    batch_bytes: int = BATCH_BYTES
    """Size of one request as stored: larger ones are no faster, and other clients wait for them."""
    body_bytes_max: int = BODY_BYTES_MAX
    """The longest body; brokers have a setting of that name."""
    ignores_others: bool = False
    """`ignore` passes over columns that no message has; `error` refuses them."""
    accepts_less_durable: bool = False
    """`accept` counts rows as written that a broker stored less durably than its settings promise;
    `retry` sends them again until the timeout."""
    creates_topics: bool = False
    """Whether brokers may make a topic that does not exist, if their settings allow it."""
    job: str | None = None
    """The name of a batch write: a repetition under the same name gives rows the same keys."""
    transactional: bool = False
    """Whether all rows of a batch become visible once, or none, by half messages."""
    transaction_time_ms: int = TRANSACTION_TIME_MS
    """How long brokers leave half messages alone: longer than most micro-batches take."""
    commits: str | None = None
    """The directory of the commit records, or their URL in an object store; beside the checkpoint
    without it."""
    access: AccessOptions = AccessOptions()


def parse(options: Mapping[str, str], environ: Mapping[str, str]) -> SinkOptions:
    """The settings of Spark's options; ConfigError for an unknown option suggests a known one."""
    known = {name.lower(): name for name in _READERS}
    fields: dict[str, Any] = {}
    others, fields["access"] = take_access(options)
    for option, text in others.items():
        if option.lower() in _SPARK_OPTIONS:
            continue
        name = known.get(option.lower())
        if name is None:
            advice = hint(option, (*_READERS, *ACCESS_OPTIONS), OPTIONS)
            raise ConfigError(f"no option {option!r} of a write{advice}")
        field, read = _READERS[name]
        fields[field] = read(text, name)
    fields.setdefault(
        "namesrv", resolve_name_servers(None, environ) if environ.get(_VARIABLE) else None
    )
    if fields["namesrv"] is None:
        raise ConfigError("option 'namesrv' is missing: .option('namesrv', '127.0.0.1:9876')")
    settings = SinkOptions(**fields)
    if settings.transactional and settings.accepts_less_durable:
        raise ConfigError(
            "transactional=true needs half messages that are as durable as promised: leave out "
            "lessDurable=accept"
        )
    if settings.transactional and settings.commits is None:
        checkpoint = {name.lower(): text for name, text in options.items()}.get(_CHECKPOINT)
        return msgspec.structs.replace(settings, commits=_beside_checkpoint(checkpoint))
    return settings


def _beside_checkpoint(checkpoint: str | None) -> str:
    """The directory for the commit records of a query with this checkpoint."""
    if checkpoint is None:
        raise ConfigError(
            "transactional=true keeps a record of each commit: set .option('commits', DIRECTORY), "
            "or for a stream .option('checkpointLocation', DIRECTORY)"
        )
    return f"{_directory(checkpoint, 'checkpointLocation').rstrip('/')}/roquet-commits"


def _directory(text: str, name: str) -> str:
    """The path of a directory, or the URL of an object store; ConfigError for other URLs."""
    parts = urlsplit(text.strip())
    if parts.scheme in PROVIDERS:
        return text.strip()  # what else has to hold is checked where it is opened
    if parts.scheme and parts.scheme != "file":
        raise ConfigError(
            f"{name}: {text!r} is no directory of this machine: set .option('commits', DIRECTORY) "
            "to one that the driver finds again wherever it is restarted"
        )
    return nonempty(parts.path if parts.scheme else text, name)


def _topic(text: str, name: str) -> str:
    topic = nonempty(text, name)
    if not can_clients_send_to(check_topic(topic)):
        raise ConfigError(f"topic {topic} is the broker's own: nobody else may send to it")
    return topic


def _job(text: str, name: str) -> str:
    if not text.strip() or not text.isprintable() or "/" in text or text.startswith(JOB_PREFIX):
        raise ConfigError(
            f"{name}: {text!r} is no name: it must not be empty, contain a slash or begin with job-"
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


def _accepts_less_durable(text: str, name: str) -> bool:
    if text.strip().lower() not in ("retry", "accept"):
        raise ConfigError(f"{name}: {text!r} is neither retry nor accept")
    return text.strip().lower() == "accept"


def _seconds(text: str, name: str) -> int:
    time_ms = parse_millis(text, name)
    if time_ms < 1_000:
        raise ConfigError(f"{name}: {text!r} is less than a second, the unit of brokers")
    return time_ms


_VARIABLE: Final = "NAMESRV_ADDR"
_CHECKPOINT: Final = "checkpointlocation"
_SPARK_OPTIONS: Final = frozenset({_CHECKPOINT, "queryname"})
"""Options of the stream itself, which Spark passes as well."""

_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "namesrv": ("namesrv", parse_addresses),
        "topic": ("topic", _topic),
        "group": ("group", lambda text, _: check_group(text.strip())),
        "timeout": ("timeout_ms", parse_millis),
        "batchBytes": ("batch_bytes", _batch_bytes),
        "maxMessageSize": ("body_bytes_max", parse_bytes),
        "otherColumns": ("ignores_others", _ignores_others),
        "lessDurable": ("accepts_less_durable", _accepts_less_durable),
        "createTopic": ("creates_topics", parse_bool),
        "job": ("job", _job),
        "transactional": ("transactional", parse_bool),
        "transactionTime": ("transaction_time_ms", _seconds),
        "commits": ("commits", _directory),
    }
)


STRING_TYPES: Final = ("string",)
INTEGER_TYPES: Final = ("tinyint", "smallint", "int")
DELAY_COLUMNS: Final = ("delay", "delay_level", "deliver_at")
"""The columns that delay a message; a row may have a value in one of them."""

TYPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "topic": STRING_TYPES,
        "key": STRING_TYPES,
        "keys": (*STRING_TYPES, "array<string>"),
        "order_key": STRING_TYPES,
        "tag": STRING_TYPES,
        "body": ("binary", "string"),
        "properties": ("map<string,string>",),
        "flag": INTEGER_TYPES,
        "delay": (*INTEGER_TYPES, "bigint", "double"),
        "delay_level": INTEGER_TYPES,
        "deliver_at": ("timestamp",),
        "message_id": STRING_TYPES,
    }
)
"""All columns and their Spark types. `delay` is in seconds."""


def check_frame(fields: Iterable[tuple[str, str]], options: SinkOptions) -> tuple[str, ...]:
    """The columns to write, in the frame's spelling; `fields` are (name, type).

    Raises ConfigError for unknown, mistyped, missing or conflicting columns.
    """
    spelling: dict[str, str] = {}
    for name, kind in fields:
        known = name.lower()
        if known not in TYPES:
            if not options.ignores_others:
                raise ConfigError(
                    f"no column {name!r} in a message{hint(name, TYPES, COLUMNS)}: drop it, or set "
                    f"otherColumns=ignore. There are {', '.join(TYPES)}"
                )
            continue
        _check_type(name, kind, TYPES[known])
        if known in spelling:
            raise ConfigError(f"columns {spelling[known]!r} and {name!r} are the same one")
        spelling[known] = name
    _check_combination(spelling, options)
    return tuple(spelling.values())


def _check_type(name: str, kind: str, kinds: tuple[str, ...]) -> None:
    # A string type may have a length or a collation.
    is_text = "string" in kinds and kind.startswith(("varchar(", "char(", "string "))
    if kind not in kinds and not is_text:
        raise ConfigError(f"column {name!r} is {kind}, not {' or '.join(kinds)}: cast it")


def _check_combination(names: Mapping[str, str], options: SinkOptions) -> None:
    if "body" not in names:
        raise ConfigError("the column 'body' is missing: it is what a message holds")
    if "topic" not in names and options.topic is None:
        raise ConfigError(
            "no topic: set .option('topic', 'orders'), or add a column 'topic'; in SQL INSERT INTO "
            "t WITH (topic = 'orders') …"
        )
    if "key" in names and "keys" in names:
        raise ConfigError("columns 'key' and 'keys' mean the same: leave one out")
    if options.transactional and (delayed := [name for name in DELAY_COLUMNS if name in names]):
        raise ConfigError(
            f"column {delayed[0]!r} delays messages, and transactional=true cannot: "
            "Apache RocketMQ would lose them"
        )
