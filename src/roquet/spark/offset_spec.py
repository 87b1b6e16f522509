"""Offset specs: the texts of startingOffsets and endingOffsets, and the offsets they mean.

    earliest · latest · 2026-01-31T12:00 · 1769860800000 · -10 minutes · group:billing
    {"orders": {"broker-a": {"0": 23, "1": -1}}}           offsets by queue; -2 earliest, -1 latest
    {"orders": {"0": 23, "1": -1}}                         the same in Kafka's form: of one broker
    {"orders": "latest", "paid": "-1 h", "*": "earliest"}  a spec for each topic

Times are compared with the time at which the broker stored a message. Without a zone they are UTC.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from roquet.lake.queue_offsets import EARLIEST_MARK, LATEST_MARK, QueueKey, QueueOffsets, queue_text
from roquet.model.errors import ConfigError
from roquet.model.moments import parse_moment
from roquet.model.names import check_group
from roquet.model.settings import suggest


class AtTime(msgspec.Struct, frozen=True):
    """The first message stored at a time or later; `ms` counts from 1970."""

    ms: int


class TimeAgo(msgspec.Struct, frozen=True):
    """The first message stored at most `ms` milliseconds before the read begins."""

    ms: int


class GroupProgress(msgspec.Struct, frozen=True):
    """A consumer group's committed offset; the earliest one of queues without a commit."""

    group: str


CommonSpec: TypeAlias = Literal["earliest", "latest"] | AtTime | TimeAgo | GroupProgress
"""A position that one text gives for every queue."""


class SpecByTopic(msgspec.Struct, frozen=True):
    """A spec for each topic; `*` is for all other topics."""

    topics: dict[str, "CommonSpec | QueueOffsets"]


OffsetSpec: TypeAlias = CommonSpec | QueueOffsets | SpecByTopic

ONLY_BROKER: Final = ""
"""Stands for the broker in Kafka's form of offsets, `{"orders": {"0": 23}}`, which names none."""

OTHER_TOPICS: Final = "*"
ONLY_TOPIC: Final = ""
"""Stands for the topic in offsets of a read of one topic, which need not be named."""

_BY_QUEUE: Final = '{"orders": {"broker-a": {"0": 23, "1": -1}}}'

SPEC_FORMS: Final = (
    "earliest, latest, a time (2026-01-31T12:00, -10 minutes, or ms since 1970), group:NAME or "
    f'JSON like {_BY_QUEUE} or {{"orders": "latest", "*": "-1 h"}}'
)

TIME_FORMS: Final = "a time: 2026-01-31T12:00, -10 minutes, or ms since 1970"

_GROUP: Final = "group:"
_AGO: Final = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)
_UNITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        unit: ms
        for units, ms in (
            ("ms millisecond milliseconds", 1),
            ("s sec second seconds", 1000),
            ("m min minute minutes", 60_000),
            ("h hour hours", 3_600_000),
            ("d day days", 86_400_000),
            ("w week weeks", 604_800_000),
        )
        for unit in units.split()
    }
)


class OffsetLookup(Protocol):
    """Lookups that need brokers; `cluster_client.ClusterClient` implements them."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def committed(self, queue: QueueKey, group: str) -> int | None:
        """A group's committed offset; None without one."""

    def first_since(self, queue: QueueKey, span: tuple[int, int], ms: int) -> int:
        """The offset, within the span, of the first message stored at `ms` or later."""


# -- text ------------------------------------------------------------------------------------


def parse(text: str, name: str) -> OffsetSpec:
    """The spec that the text of an option means; ConfigError names what is wrong in it."""
    spec = text.strip()
    if spec.startswith("{"):
        try:
            return _parse_json(json.loads(spec), name)
        except ValueError as error:
            raise ConfigError(f"{name}: {text!r} is no JSON: {error}") from None
    return _parse_common(spec, name)


def parse_time(text: str, name: str) -> AtTime | TimeAgo:
    """A time in one of the forms of `TIME_FORMS`; ConfigError for anything else."""
    if (time := _parse_time(text.strip(), name)) is None:
        raise ConfigError(f"{name}: {text!r} is not {TIME_FORMS}")
    return time


def check_topics(spec: OffsetSpec, topics: Iterable[str], name: str) -> OffsetSpec:
    """The spec with `ONLY_TOPIC` replaced; ConfigError when it names a topic that is not read."""
    known = tuple(topics)
    if isinstance(spec, dict) and any(queue[0] == ONLY_TOPIC for queue in spec):
        named = {broker for _, broker, _ in spec}
        if named <= set(known) or not known:  # the names are topics: a pattern's are not known yet
            return {(topic, ONLY_BROKER, number): at for (_, topic, number), at in spec.items()}
        if len(known) != 1:
            raise ConfigError(f'{name} must name topics: {{"orders": {{"broker-a": {{"0": 23}}}}}}')
        spec = {(known[0], broker, number): at for (_, broker, number), at in spec.items()}
    for topic in sorted(named_topics(spec)) if known else ():
        if topic not in known:
            raise ConfigError(f"{name}: topic {topic!r} is not read{suggest(topic, known)}")
    return spec


def named_topics(spec: OffsetSpec) -> set[str]:
    """The topics that a spec names."""
    if isinstance(spec, dict):
        return {topic for topic, _, _ in spec}
    return set(spec.topics) - {OTHER_TOPICS} if isinstance(spec, SpecByTopic) else set()


def _parse_common(value: Any, name: str) -> CommonSpec:
    text = value.strip() if isinstance(value, str) else ""
    word = text.lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if word.startswith(_GROUP):
        return GroupProgress(check_group(text[len(_GROUP) :].strip()))
    if (time := _parse_time(text, name)) is None:
        raise ConfigError(f"{name}: {value!r} is not {SPEC_FORMS}")
    return time


def _parse_time(text: str, name: str) -> AtTime | TimeAgo | None:
    if text.isascii() and text.isdecimal():
        return AtTime(parse_moment(text, name))
    if (ago := _AGO.fullmatch(text.lower())) and ago[2] in _UNITS:
        return TimeAgo(int(float(ago[1]) * _UNITS[ago[2]]))
    try:
        return AtTime(parse_moment(text, name, UTC))
    except ConfigError:
        return None


def _parse_json(read: Mapping[str, Any], name: str) -> OffsetSpec:
    """Offsets when every value is a JSON object, otherwise a spec by topic."""
    if not read:
        raise ConfigError(f"{name}: there is nothing in it: {SPEC_FORMS}")
    if all(isinstance(value, dict) for value in read.values()):
        names_no_topic = all(
            value and not any(isinstance(inner, dict) for inner in value.values())
            for value in read.values()
        )
        return _parse_offsets({ONLY_TOPIC: read} if names_no_topic else read, name)
    return SpecByTopic({topic: _parse_topic(topic, value, name) for topic, value in read.items()})


def _parse_topic(topic: str, value: Any, name: str) -> CommonSpec | QueueOffsets:
    if isinstance(value, dict) and topic != OTHER_TOPICS:
        return _parse_offsets({topic: value}, name)
    return _parse_common(value, name)


def _parse_offsets(nested: Mapping[str, Any], name: str) -> QueueOffsets:
    offsets: QueueOffsets = {}
    for topic, brokers in nested.items():
        if brokers and not any(isinstance(queues, dict) for queues in brokers.values()):
            brokers = {ONLY_BROKER: brokers}
        for broker, queues in brokers.items():
            if not isinstance(queues, dict):
                raise ConfigError(f"{name}: {queues!r} for broker {broker!r} is not {SPEC_FORMS}")
            for number, at in queues.items():
                if type(at) is not int or at < EARLIEST_MARK or not number.isdecimal():
                    raise ConfigError(
                        f"{name}: offset {at!r} of queue {number!r} of broker {broker!r}: whole "
                        "numbers are wanted, -2 for earliest, -1 for latest"
                    )
                offsets[topic, broker, int(number)] = at
    return offsets


# -- offsets ---------------------------------------------------------------------------------


def starting_offsets(
    spec: OffsetSpec, earliest: QueueOffsets, latest: QueueOffsets, lookup: OffsetLookup
) -> QueueOffsets:
    """The first offset to read of each queue; ConfigError for one beyond the queue's end.

    Offsets below the earliest one stay as they are: the read then reports what was lost.
    """
    start = _resolve(spec, _Bounds(earliest, latest, earliest), lookup)
    for queue, first in sorted(start.items()):
        if first > latest[queue]:
            raise ConfigError(
                f"{queue_text(queue)} is to be read from {first}, "
                f"but has messages up to {latest[queue]}"
            )
    return start


def ending_offsets(
    spec: OffsetSpec, earliest: QueueOffsets, latest: QueueOffsets, lookup: OffsetLookup
) -> QueueOffsets:
    """The end offset (exclusive) of each queue."""
    return _resolve(spec, _Bounds(earliest, latest, latest), lookup)


class _Bounds(msgspec.Struct, frozen=True):
    """Offsets of all queues that a spec is resolved against."""

    earliest: QueueOffsets
    latest: QueueOffsets
    default: QueueOffsets
    """For queues that the spec does not name."""


def _resolve(spec: OffsetSpec, bounds: _Bounds, lookup: OffsetLookup) -> QueueOffsets:
    if isinstance(spec, SpecByTopic):
        return _by_topic(spec, bounds, lookup)
    if isinstance(spec, AtTime | TimeAgo | GroupProgress):
        find = _lookup(spec, lookup)
        earliest, latest = bounds.earliest, bounds.latest
        return {queue: find(queue, (earliest[queue], last)) for queue, last in latest.items()}
    return explicit_offsets(spec, bounds.earliest, bounds.latest, bounds.default)


def explicit_offsets(
    spec: Literal["earliest", "latest"] | QueueOffsets,
    earliest: QueueOffsets,
    latest: QueueOffsets,
    rest: QueueOffsets,
) -> QueueOffsets:
    """An offset for each queue; queues that the spec does not name get the one in `rest`."""
    if isinstance(spec, str):
        return dict(earliest if spec == "earliest" else latest)
    spec = {_with_broker(queue, at, latest): at for queue, at in spec.items()}
    if unknown := sorted(spec.keys() - latest.keys()):
        topic, broker, queue_id = unknown[0]
        raise ConfigError(f"topic {topic!r} has no queue {queue_id} of a broker {broker!r}")
    marks = {EARLIEST_MARK: earliest, LATEST_MARK: latest}
    return {
        queue: marks[spec[queue]][queue] if spec.get(queue, 0) < 0 else spec.get(queue, offset)
        for queue, offset in rest.items()
    }


def _with_broker(queue: QueueKey, at: int, known: QueueOffsets) -> QueueKey:
    """The queue of Kafka's form of offsets; ConfigError unless its topic has a single broker."""
    topic, broker, number = queue
    brokers = sorted({broker for name, broker, _ in known if name == topic})
    if broker != ONLY_BROKER:
        return queue
    if not brokers:
        raise ConfigError(
            f"offsets of topic {topic!r}, which is not read; their form is {_BY_QUEUE}"
        )
    if len(brokers) > 1:
        form = json.dumps({topic: {name: {str(number): at} for name in brokers}})
        raise ConfigError(
            f"queue {number} of topic {topic!r}: {', '.join(brokers)} have one each, say which is "
            f"meant: {form}"
        )
    return topic, brokers[0], number


def _lookup(
    place: AtTime | TimeAgo | GroupProgress, lookup: OffsetLookup
) -> Callable[[QueueKey, tuple[int, int]], int]:
    """A function that finds a queue's offset within a span [first, next offset]."""
    if isinstance(place, GroupProgress):
        group = place.group

        def committed_or_first(queue: QueueKey, span: tuple[int, int]) -> int:
            committed = lookup.committed(queue, group)
            return span[0] if committed is None else committed

        return committed_or_first
    ms = place.ms if isinstance(place, AtTime) else lookup.now_ms() - place.ms
    return lambda queue, span: lookup.first_since(queue, span, ms)


def _by_topic(spec: SpecByTopic, bounds: _Bounds, lookup: OffsetLookup) -> QueueOffsets:
    offsets = dict(bounds.default)
    for topic in {topic for topic, _, _ in offsets}:
        own = spec.topics.get(topic, spec.topics.get(OTHER_TOPICS))
        if own is not None:
            of_topic = _Bounds(
                _of_one_topic(bounds.earliest, topic),
                _of_one_topic(bounds.latest, topic),
                _of_one_topic(bounds.default, topic),
            )
            offsets |= _resolve(own, of_topic, lookup)
    return offsets


def _of_one_topic(offsets: QueueOffsets, topic: str) -> QueueOffsets:
    return {queue: at for queue, at in offsets.items() if queue[0] == topic}
