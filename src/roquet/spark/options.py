"""SourceOptions: Spark's strings to typed settings."""

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import nearest, parse_addresses, parse_bool, parse_int, parse_millis
from roquet.spark.plan import EARLIEST_MARK, Edge, Offsets, from_json
from roquet.spark.schema import DEFAULT, chosen

GROUP: Final = "roquet-spark"
"""The consumer group that reads are made for. Nothing is ever committed for it."""

TIMEOUT_MS: Final = 60_000
"""How long a broker may be away, starting again for example, before a read gives up."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user said of a read."""

    namesrv: tuple[str, ...]
    topics: tuple[str, ...]
    starting_offsets: Edge = "earliest"
    ending_offsets: Edge = "latest"
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = DEFAULT
    min_partitions: int = 1
    max_partitions: int | None = None
    group: str = GROUP
    decompress: bool = True
    timeout_ms: int = TIMEOUT_MS


def parse(options: Mapping[str, str], environ: Mapping[str, str]) -> SourceOptions:
    """The settings of Spark's options; an option that there is not is named, with the right one."""
    known = {name.lower(): name for name in _READERS}
    found: dict[str, Any] = {}
    for given, text in options.items():
        name = known.get(given.lower())
        if name is None:
            raise ConfigError(f"no option {given!r}{nearest(given, _READERS)}")
        field, read = _READERS[name]
        found[field] = read(text, name)
    if "namesrv" not in found:
        found["namesrv"] = _namesrv_of(environ)
    if "topics" not in found:
        raise ConfigError("option 'topic' is missing: .option('topic', 'orders')")
    settings = SourceOptions(**found)
    if settings.max_partitions and settings.max_partitions < settings.min_partitions:
        raise ConfigError("maxPartitions is less than minPartitions")
    return settings


def _namesrv_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    text = environ.get("NAMESRV_ADDR")
    if not text:
        raise ConfigError("option 'namesrv' is missing: .option('namesrv', '127.0.0.1:9876')")
    return parse_addresses(text, "NAMESRV_ADDR")


def _topics(text: str, name: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise ConfigError(f"option {name!r} is empty")
    return topics


def _edge(text: str, name: str) -> Edge:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    try:
        return _offsets(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        wanted = 'earliest, latest or JSON like {"orders": {"broker-a": {"0": 23, "1": -1}}}'
        raise ConfigError(f"{name}: {text!r} is not {wanted}") from None


def _offsets(read: Any) -> Offsets:
    offsets = from_json(read)
    for at in _numbers(read):
        if type(at) is not int or at < EARLIEST_MARK:
            raise ValueError
    return offsets


def _numbers(read: Any) -> Iterator[Any]:
    for brokers in read.values():
        for queues in brokers.values():
            yield from queues.values()


def _columns(text: str, _name: str) -> tuple[str, ...]:
    return chosen(part.strip() for part in text.split(",") if part.strip())


def _text(text: str, name: str) -> str:
    if not text.strip():
        raise ConfigError(f"option {name!r} is empty")
    return text.strip()


def _positive(text: str, name: str) -> int:
    return parse_int(text, name, least=1)


_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "namesrv": ("namesrv", parse_addresses),
        "topic": ("topics", _topics),
        "startingOffsets": ("starting_offsets", _edge),
        "endingOffsets": ("ending_offsets", _edge),
        "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _positive),
        "failOnDataLoss": ("fail_on_data_loss", parse_bool),
        "columns": ("columns", _columns),
        "minPartitions": ("min_partitions", _positive),
        "maxPartitions": ("max_partitions", _positive),
        "group": ("group", _text),
        "decompress": ("decompress", parse_bool),
        "timeout": ("timeout_ms", parse_millis),
    }
)
"""Every option: the setting it is, and how its text is read."""
