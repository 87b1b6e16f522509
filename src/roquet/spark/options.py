"""SourceOptions: Spark's strings to typed settings."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.model.errors import ConfigError, UsageError
from roquet.model.names import check_group, check_topic
from roquet.model.settings import (
    parse_addresses,
    parse_bool,
    parse_bytes,
    parse_int,
    parse_millis,
)
from roquet.spark import offset_spec
from roquet.spark.kafka_names import OPTIONS, hint
from roquet.spark.offset_spec import OffsetSpec
from roquet.spark.schema import DEFAULT, TYPES, check_names
from roquet.spark.topic_pattern import matching, parse_pattern

GROUP: Final = "roquet-spark"
"""The consumer group that reads are made for. Nothing is ever committed for it."""

ALL_COLUMNS: Final = "*"
"""Every column there is."""

TIMEOUT_MS: Final = 120_000
"""How long a broker may be away before a read gives up: one that starts again may take a minute to
look through its log."""


MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
"""How long fewer messages than minOffsetsPerTrigger wait; Spark's Kafka source says the same."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user said of a read."""

    namesrv: tuple[str, ...]
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    """Instead of topics: all that match now, and later those that are new."""
    starting_offsets: OffsetSpec = "earliest"
    ending_offsets: OffsetSpec = "latest"
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    max_records_per_partition: int | None = None
    publish_progress: str | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = DEFAULT
    tags: tuple[str, ...] | None = None
    """Only messages with one of these tags."""
    sql92: str | None = None
    """Only messages for whose properties this expression is true."""
    pushdown: bool = False
    drop_doubles: bool = False
    min_partitions: int = 1
    max_partitions: int | None = None
    group: str = GROUP
    share_group: bool = False
    """Read for the group though it has members."""
    decompress: bool = True
    timeout_ms: int = TIMEOUT_MS


def parse(options: Mapping[str, str], environ: Mapping[str, str]) -> SourceOptions:
    """The settings of Spark's options; an option that there is not is named, with the right one."""
    known = {name.lower(): name for name in _READERS}
    found: dict[str, Any] = {}
    _check_exclusive({name.lower() for name in options})
    for given, text in options.items():
        name = known.get(given.lower())
        if name is None:
            raise ConfigError(f"no option {given!r}{hint(given, _READERS, OPTIONS)}")
        field, read = _READERS[name]
        found[field] = read(text, name)
    if "namesrv" not in found:
        found["namesrv"] = _namesrv_of(environ)
    if "topics" not in found and "topic_pattern" not in found:
        raise ConfigError("option 'topic' is missing: .option('topic', 'orders')")
    for field in ("starting_offsets", "ending_offsets"):
        if field in found:
            name = f"{field.removesuffix('_offsets')}Offsets"
            found[field] = offset_spec.check_topics(found[field], found.get("topics", ()), name)
            _check_matched(found[field], found.get("topic_pattern"), name)
    found.pop("body_format", None)
    settings = SourceOptions(**found)
    if settings.max_partitions and settings.max_partitions < settings.min_partitions:
        raise ConfigError("maxPartitions is less than minPartitions")
    return settings


def stream_only(options: Iterable[str]) -> list[str]:
    """Those of the options that mean nothing to a batch read."""
    given = {name.lower() for name in options}
    return [name for name in _STREAM_ONLY if name.lower() in given]


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


def _check_exclusive(given: set[str]) -> None:
    """ConfigError for two options that say the same thing, or nothing together."""
    for one, other in _EXCLUSIVE:
        if one.lower() in given and other.lower() in given:
            raise ConfigError(f"options {one!r} and {other!r} do not go together: choose one")


def _check_matched(edge: OffsetSpec, pattern: str | None, name: str) -> None:
    """ConfigError for an edge of a topic that the pattern will never match."""
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
        found = tag_filter.parse_tags(text)
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None
    if found is not None and not found:
        raise ConfigError(f"{name}: {text!r} names no tag: no message would be read")
    return None if found is None else tuple(sorted(found))


def _sql92(text: str, name: str) -> str:
    from roquet.rules import sql92

    try:
        sql92.parse(text)
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None
    return text


def _group(text: str, name: str) -> str:
    try:
        return check_group(_text(text, name))
    except UsageError as error:
        raise ConfigError(f"{name}: {error}") from None


def _columns(text: str, _name: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(TYPES) if parts == [ALL_COLUMNS] else check_names(parts)


def _text(text: str, name: str) -> str:
    if not text.strip():
        raise ConfigError(f"option {name!r} is empty")
    return text.strip()


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
        "publishProgress": ("publish_progress", _text),
        "failOnDataLoss": ("fail_on_data_loss", parse_bool),
        "columns": ("columns", _columns),
        "minPartitions": ("min_partitions", _positive),
        "maxPartitions": ("max_partitions", _positive),
        "group": ("group", _group),
        "shareGroup": ("share_group", parse_bool),
        "decompress": ("decompress", parse_bool),
        "timeout": ("timeout_ms", parse_millis),
    }
)
"""Every option: the setting it is, and how its text is read."""

SOURCE_OPTIONS: Final = tuple(_READERS)

_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "publishProgress",
)
"""Options that say something of micro-batches."""

_EXCLUSIVE: Final = (
    ("topic", "topicPattern"),
    ("startingOffsets", "startingTime"),
    ("endingOffsets", "endingTime"),
    ("tags", "sql92"),
)
"""Options of which a read has one."""
