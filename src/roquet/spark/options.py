"""SourceOptions: the options of a read, parsed from Spark's strings, and its pattern of topics."""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.lake.kafka_names import OPTIONS, hint
from roquet.lake.schema import DEFAULT, TYPES, check_names
from roquet.model import names
from roquet.model.errors import ConfigError, UsageError
from roquet.model.names import check_group, check_topic
from roquet.model.settings import parse_addresses, parse_bool, parse_bytes, parse_int, parse_millis
from roquet.rules.consumption.topic_patterns import is_user_topic
from roquet.rules.replication.read_from import ReadFrom
from roquet.spark import offset_spec
from roquet.spark.access_options import ACCESS_OPTIONS, AccessOptions, nonempty, take_access
from roquet.spark.offset_spec import OffsetSpec

_PREFIXES: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX, names.SYSTEM_TOPIC_PREFIX)


def parse_pattern(text: str, name: str) -> str:
    """The regular expression in an option's text; ConfigError when it does not compile."""
    pattern = nonempty(text, name)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{name}: {pattern!r} is no regular expression: {error}") from None
    return pattern


def matching(pattern: str, topics: Iterable[str], hidden: Iterable[str]) -> tuple[str, ...]:
    """The topics that the pattern matches in full, sorted.

    System topics and `hidden` ones (named after brokers and clusters) are left out unless the
    pattern names them. Retry, dead-letter and %SYS% topics need a pattern with their prefix.
    """
    expression, hidden_names = re.compile(pattern), frozenset(hidden)
    named = frozenset(re.split(r"[|()]", pattern))
    return tuple(
        sorted(
            topic
            for topic in set(topics)
            if expression.fullmatch(topic)
            and (topic in named or _is_selected(pattern, topic, hidden_names))
        )
    )


def _is_selected(pattern: str, topic: str, hidden: frozenset[str]) -> bool:
    for prefix in _PREFIXES:
        if topic.startswith(prefix):
            return pattern.startswith(prefix)
    return is_user_topic(topic, hidden)


GROUP: Final = "roquet-spark"
"""The default consumer group of pulls. No offset is ever committed for it."""

ALL_COLUMNS: Final = "*"
"""The value of option `columns` that selects every column."""

TIMEOUT_MS: Final = 120_000
"""How long a read waits for a broker: a restart may take a minute to check the log."""

SQL_ADVICE: Final = (
    ", in SQL SELECT … FROM t WITH (topic = 'orders'): Spark does not pass a table's own OPTIONS to"
    " its reads and writes"
)
"""Advice where the option topic is missing; a table of SQL has none of its own."""

PATHS: Final = ("path", "paths")
PATH_ADVICE: Final = ": load() without a path, .option('topic', 'orders') instead"

MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
"""How long fewer messages than minOffsetsPerTrigger are held back; as in Spark's Kafka source."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a read."""

    namesrv: tuple[str, ...]
    """Name servers, `a:9876;b:9876`; those of the environment variable NAMESRV_ADDR without it."""
    topics: tuple[str, ...] = ()
    """The topic, or several with commas between them."""
    topic_pattern: str | None = None
    """A regular expression for whole names in the place of `topic`; a stream adds topics that
    match later."""
    starting_offsets: OffsetSpec = "earliest"
    """Where a read begins: earliest, latest, a time, an age, `group:NAME` or offsets as JSON.
    `startingTime` takes a time or an age."""
    ending_offsets: OffsetSpec = "latest"
    """Where a batch read ends, that message excluded, in the same forms; a stream has no end.
    `endingTime` takes a time or an age."""
    max_offsets_per_trigger: int | None = None
    """Most messages of a stream's batch, shared out among the queues."""
    max_bytes_per_trigger: int | None = None
    """Most bytes of a stream's batch as stored, by an estimate of the messages' size."""
    min_offsets_per_trigger: int | None = None
    """Fewer messages wait for more, at most for `maxTriggerDelay`."""
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    """How long fewer messages than `minOffsetsPerTrigger` are held back."""
    max_records_per_partition: int | None = None
    """Most messages of one task; counts more than `maxPartitions`."""
    publish_progress: str | None = None
    """The group that a stream's offsets are committed for, one batch late; `listener.publish` does
    it at once."""
    fail_on_data_loss: bool = True
    """`false` continues where messages are gone, and logs which ones."""
    columns: tuple[str, ...] = DEFAULT
    """The columns of the rows, with commas between them; `*` is all. Others are never built."""
    tags: tuple[str, ...] | None = None
    """Only messages with one of these tags: `paid || refunded`. Brokers look at them."""
    sql92: str | None = None
    """Only messages whose properties make this expression true. Brokers look at them."""
    pushdown: bool = False
    """Whether the conditions of a batch query narrow what is read; Spark checks them again."""
    drop_doubles: bool = False
    """Whether of messages that Roquet's sink wrote twice a task gives the first one alone."""
    min_partitions: int = 1
    """Fewest tasks of a read."""
    max_partitions: int | None = None
    """Most tasks of a read; the cores of the session without it."""
    group: str = GROUP
    """The consumer group that brokers count the reads for; no offset is committed for it."""
    share_group: bool = False
    """Read with the group's name even when it has members."""
    decompress: bool = True
    """`false` leaves compressed bodies as they are."""
    timeout_ms: int = TIMEOUT_MS
    """How long name servers and brokers may be away before the read fails: a restart may take a
    minute. After two seconds a warning says what is waited for."""
    read_from: ReadFrom = ReadFrom.MASTER
    """`replica`: tasks read what replicas have from them, and the rest from the master."""
    body_format: str = "binary"
    """Only `binary` here, and no schema: `roquet.spark.typed` makes typed columns of JSON."""
    access: AccessOptions = AccessOptions()


def parse(options: Mapping[str, str], environ: Mapping[str, str]) -> SourceOptions:
    """The settings of Spark's options; ConfigError for an unknown option suggests a known one."""
    known = {name.lower(): name for name in _READERS}
    fields: dict[str, Any] = {}
    _check_exclusive({name.lower() for name in options})
    others, fields["access"] = take_access(options)
    for option, text in others.items():
        name = known.get(option.lower())
        if name is None:
            advice = PATH_ADVICE if option in PATHS else hint(option, SOURCE_OPTIONS, OPTIONS)
            raise ConfigError(f"no option {option!r}{advice}")
        field, read = _READERS[name]
        fields[field] = read(text, name)
    if "namesrv" not in fields:
        fields["namesrv"] = _namesrv_of(environ)
    if "topics" not in fields and "topic_pattern" not in fields:
        raise ConfigError(f"option 'topic' is missing: .option('topic', 'orders'){SQL_ADVICE}")
    for field in ("starting_offsets", "ending_offsets"):
        if field in fields:
            name = f"{field.removesuffix('_offsets')}Offsets"
            fields[field] = offset_spec.check_topics(fields[field], fields.get("topics", ()), name)
            _check_matched(fields[field], fields.get("topic_pattern"), name)
    settings = SourceOptions(**fields)
    if settings.max_partitions and settings.max_partitions < settings.min_partitions:
        raise ConfigError("maxPartitions is less than minPartitions")
    return settings


def stream_only(options: Iterable[str]) -> list[str]:
    """The options that only streams use, in their documented spelling."""
    names = {name.lower() for name in options}
    return [name for name in _STREAM_ONLY if name.lower() in names]


def _namesrv_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    text = environ.get("NAMESRV_ADDR")
    if not text:
        raise ConfigError("option 'namesrv' is missing: .option('namesrv', '127.0.0.1:9876')")
    return parse_addresses(text, "NAMESRV_ADDR")


def _topics(text: str, name: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise ConfigError(f"option {name!r} is empty")
    try:
        return tuple(map(check_topic, topics))
    except UsageError as error:
        advice = "; topicPattern takes a regular expression" if "*" in text else ""
        raise ConfigError(f"{name}: {error}{advice}") from None


def _check_exclusive(names: set[str]) -> None:
    for first, second in _EXCLUSIVE:
        if first.lower() in names and second.lower() in names:
            raise ConfigError(f"options {first!r} and {second!r} do not go together: choose one")


def _check_matched(edge: OffsetSpec, pattern: str | None, name: str) -> None:
    """Raise ConfigError for offsets of a topic that the pattern never matches."""
    if pattern is None:
        return
    for topic in sorted(offset_spec.named_topics(edge)):
        if not matching(pattern, [topic], ()):
            raise ConfigError(f"{name}: topicPattern {pattern!r} does not match topic {topic!r}")


def _body_format(text: str, name: str) -> str:
    if text.strip().lower() != "binary":
        raise ConfigError(
            f"{name}={text.strip()}: this source gives bodies as bytes; for typed columns use "
            "roquet.spark.typed: read_json(spark, options, schema), or typed(frame, schema)"
        )
    return text


def _body_schema(_text: str, name: str) -> str:
    raise ConfigError(
        f"{name}: this source gives bodies as bytes; for typed columns use roquet.spark.typed: "
        "read_json(spark, options, schema), or typed(frame, schema)"
    )


def _tags(text: str, name: str) -> tuple[str, ...] | None:
    from roquet.rules import tag_filter  # reads without a filter need no rules

    try:
        tags = tag_filter.parse_tags(text)
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None
    if tags is not None and not tags:
        raise ConfigError(f"{name}: {text!r} names no tag: the read would be empty")
    return None if tags is None else tuple(sorted(tags))


def _sql92(text: str, name: str) -> str:
    from roquet.rules import sql92

    try:
        sql92.parse(text)
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None
    return text


def _group(text: str, name: str) -> str:
    try:
        return check_group(nonempty(text, name))
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None


def parse_columns(text: str, _name: str) -> tuple[str, ...]:
    """The columns in the text of option `columns`; ConfigError for an unknown one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(TYPES) if parts == [ALL_COLUMNS] else check_names(parts)


def _read_from(text: str, name: str) -> ReadFrom:
    choices = {each.value: each for each in (ReadFrom.MASTER, ReadFrom.REPLICA)}
    chosen = choices.get(text.strip().lower())
    if chosen is None:
        raise ConfigError(f"{name}: {text.strip()!r} is neither master nor replica")
    return chosen


def _positive(text: str, name: str) -> int:
    return parse_int(text, name, least=1)


def _bytes(text: str, name: str) -> int:
    size = parse_bytes(text, name)
    if size < 1:
        raise ConfigError(f"{name}: {size} is less than 1")
    return size


_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "namesrv": ("namesrv", parse_addresses),
        "topic": ("topics", _topics),
        "topicPattern": ("topic_pattern", parse_pattern),
        "startingOffsets": ("starting_offsets", offset_spec.parse),
        "startingTime": ("starting_offsets", offset_spec.parse_time),
        "endingOffsets": ("ending_offsets", offset_spec.parse),
        "endingTime": ("ending_offsets", offset_spec.parse_time),
        "tags": ("tags", _tags),
        "sql92": ("sql92", _sql92),
        "pushdown": ("pushdown", parse_bool),
        "dropDoubles": ("drop_doubles", parse_bool),
        "bodyFormat": ("body_format", _body_format),
        "bodySchema": ("body_format", _body_schema),
        "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _positive),
        "maxBytesPerTrigger": ("max_bytes_per_trigger", _bytes),
        "minOffsetsPerTrigger": ("min_offsets_per_trigger", _positive),
        "maxTriggerDelay": ("max_trigger_delay_ms", parse_millis),
        "maxRecordsPerPartition": ("max_records_per_partition", _positive),
        "publishProgress": ("publish_progress", nonempty),
        "failOnDataLoss": ("fail_on_data_loss", parse_bool),
        "columns": ("columns", parse_columns),
        "minPartitions": ("min_partitions", _positive),
        "maxPartitions": ("max_partitions", _positive),
        "group": ("group", _group),
        "shareGroup": ("share_group", parse_bool),
        "decompress": ("decompress", parse_bool),
        "timeout": ("timeout_ms", parse_millis),
        "readFrom": ("read_from", _read_from),
    }
)

SOURCE_OPTIONS: Final = (*_READERS, *ACCESS_OPTIONS)

_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "publishProgress",
)

_EXCLUSIVE: Final = (
    ("topic", "topicPattern"),
    ("startingOffsets", "startingTime"),
    ("endingOffsets", "endingTime"),
    ("tags", "sql92"),
)
