"""Edges: where a read begins and ends, as users say it, and the offsets that this means.

    earliest · latest · 2026-01-31T12:00 · 1769860800000 · -10 minutes · group:billing
    {"orders": {"broker-a": {"0": 23, "1": -1}}}          an offset for each queue, -2 and -1 edges
    {"orders": "latest", "paid": "-1 h", "*": "earliest"} each topic its own

Times are of the broker: when it stored a message. One without a time zone is in UTC.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.names import check_group
from roquet.model.settings import suggest
from roquet.spark.queue_offsets import (
    EARLIEST_MARK,
    LATEST_MARK,
    QueueKey,
    QueueOffsets,
    queue_text,
)


class AtTime(msgspec.Struct, frozen=True):
    """The first message stored at a time or later."""

    ms: int


class TimeAgo(msgspec.Struct, frozen=True):
    """The same, for the time so long before the read begins."""

    ms: int


class GroupProgress(msgspec.Struct, frozen=True):
    """Where a consumer group stands; the first message of a queue that it has no progress in."""

    group: str


CommonSpec: TypeAlias = Literal["earliest", "latest"] | AtTime | TimeAgo | GroupProgress
"""What can be said of many queues at once."""


class SpecByTopic(msgspec.Struct, frozen=True):
    """Each topic its own edge; `*` is that of all others."""

    topics: dict[str, "CommonSpec | QueueOffsets"]


OffsetSpec: TypeAlias = CommonSpec | QueueOffsets | SpecByTopic

OTHER_TOPICS: Final = "*"
ONLY_TOPIC: Final = ""
"""Stands in offsets for the one topic of a read, which need not be named."""

TIME_MIN: Final = 100_000_000_000
"""Milliseconds from 1970 to 1973: a smaller number is a time in seconds, or an offset."""

SPEC_FORMS: Final = (
    "earliest, latest, a time (2026-01-31T12:00, -10 minutes, or ms since 1970), group:NAME or "
    'JSON like {"orders": {"broker-a": {"0": 23, "1": -1}}} or {"orders": "latest", "*": "-1 h"}'
)

TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

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
    """What brokers are asked for: `cluster.Cluster` does it."""

    def now_ms(self) -> int:
        """The time."""

    def committed(self, queue: QueueKey, group: str) -> int | None:
        """A group's progress."""

    def first_since(self, queue: QueueKey, span: tuple[int, int], ms: int) -> int:
        """The offset of the first message stored at a time or later."""


# -- text ------------------------------------------------------------------------------------


def parse(text: str, name: str) -> OffsetSpec:
    """What the text of an option says; ConfigError for what cannot be read."""
    said = text.strip()
    if said.startswith("{"):
        try:
            return _parse_json(json.loads(said), name)
        except ValueError as error:
            raise ConfigError(f"{name}: {text!r} is no JSON: {error}") from None
    return _parse_common(said, name)


def parse_time(text: str, name: str) -> AtTime | TimeAgo:
    """A time, written in one of three ways."""
    if (found := _parse_time(text.strip(), name)) is None:
        raise ConfigError(f"{name}: {text!r} is not {TIME_FORMS}")
    return found


def check_topics(edge: OffsetSpec, topics: Iterable[str], name: str) -> OffsetSpec:
    """The edge of a read of these topics; ConfigError when it says something of another one."""
    known = tuple(topics)
    if isinstance(edge, dict) and any(queue[0] == ONLY_TOPIC for queue in edge):
        if len(known) != 1:
            raise ConfigError(f'{name} must name topics: {{"orders": {{"broker-a": {{"0": 23}}}}}}')
        edge = {(known[0], broker, number): at for (_, broker, number), at in edge.items()}
    for topic in sorted(named_topics(edge)) if known else ():
        if topic not in known:
            raise ConfigError(f"{name}: topic {topic!r} is not read{suggest(topic, known)}")
    return edge


def named_topics(edge: OffsetSpec) -> set[str]:
    """The topics that it says something of by their names."""
    if isinstance(edge, dict):
        return {topic for topic, _, _ in edge}
    return set(edge.topics) - {OTHER_TOPICS} if isinstance(edge, SpecByTopic) else set()


def _parse_common(said: Any, name: str) -> CommonSpec:
    text = said.strip() if isinstance(said, str) else ""
    word = text.lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if word.startswith(_GROUP):
        return GroupProgress(check_group(text[len(_GROUP) :].strip()))
    if (found := _parse_time(text, name)) is None:
        raise ConfigError(f"{name}: {said!r} is not {SPEC_FORMS}")
    return found


def _parse_time(text: str, name: str) -> AtTime | TimeAgo | None:
    if text.isascii() and text.isdecimal():
        if int(text) < TIME_MIN:
            raise ConfigError(
                f"{name}: {text} is no time in ms since 1970: it would be before 1973"
            )
        if int(text) > TIME_MAX:
            raise ConfigError(f"{name}: {text} is no time in ms since 1970: none is so late")
        return AtTime(int(text))
    if (ago := _AGO.fullmatch(text.lower())) and ago[2] in _UNITS:
        return TimeAgo(int(float(ago[1]) * _UNITS[ago[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return AtTime(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _parse_json(read: Mapping[str, Any], name: str) -> OffsetSpec:
    """Offsets where nothing else is said, else what is said by topic."""
    if not read:
        raise ConfigError(f"{name}: there is nothing in it: {SPEC_FORMS}")
    if all(isinstance(value, dict) for value in read.values()):
        one = all(_is_queues(value) for value in read.values())
        return _parse_offsets({ONLY_TOPIC: read} if one else read, name)
    return SpecByTopic({topic: _parse_topic(topic, value, name) for topic, value in read.items()})


def _parse_topic(topic: str, value: Any, name: str) -> CommonSpec | QueueOffsets:
    if isinstance(value, dict) and topic != OTHER_TOPICS:
        return _parse_offsets({topic: value}, name)
    return _parse_common(value, name)


def _is_queues(value: Mapping[str, Any]) -> bool:
    return bool(value) and not any(isinstance(inner, dict) for inner in value.values())


def _parse_offsets(nested: Mapping[str, Any], name: str) -> QueueOffsets:
    found: QueueOffsets = {}
    for topic, brokers in nested.items():
        for broker, queues in brokers.items():
            if not isinstance(queues, dict):
                raise ConfigError(f"{name}: {queues!r} for broker {broker!r} is not {SPEC_FORMS}")
            for number, at in queues.items():
                if type(at) is not int or at < EARLIEST_MARK or not number.isdecimal():
                    raise ConfigError(
                        f"{name}: offset {at!r} of queue {number!r} of broker {broker!r}: whole "
                        "numbers are wanted, -2 for earliest, -1 for latest"
                    )
                found[topic, broker, int(number)] = at
    return found


# -- offsets ---------------------------------------------------------------------------------


def starting_offsets(
    edge: OffsetSpec, earliest: QueueOffsets, latest: QueueOffsets, asked: OffsetLookup
) -> QueueOffsets:
    """Where each queue's reading begins; ConfigError for an offset that there is not yet.

    One that is there no more is kept: whoever reads it hears what is lost.
    """
    found = _resolve(edge, (earliest, latest, earliest), asked)
    for queue, first in sorted(found.items()):
        if first > latest[queue]:
            raise ConfigError(
                f"{queue_text(queue)} is to be read from {first}, "
                f"but has messages up to {latest[queue]}"
            )
    return found


def ending_offsets(
    edge: OffsetSpec, earliest: QueueOffsets, latest: QueueOffsets, asked: OffsetLookup
) -> QueueOffsets:
    """Where each queue's reading ends."""
    return _resolve(edge, (earliest, latest, latest), asked)


_Bounds = tuple[QueueOffsets, QueueOffsets, QueueOffsets]
"""Earliest, latest, and where queues are that are not named."""


def _resolve(edge: OffsetSpec, bounds: _Bounds, asked: OffsetLookup) -> QueueOffsets:
    if isinstance(edge, SpecByTopic):
        return _by_topic(edge, bounds, asked)
    if isinstance(edge, AtTime | TimeAgo | GroupProgress):
        find = _lookup(edge, asked)
        earliest, latest, _ = bounds
        return {queue: find(queue, (earliest[queue], last)) for queue, last in latest.items()}
    return explicit_offsets(edge, *bounds)


def explicit_offsets(
    edge: Literal["earliest", "latest"] | QueueOffsets,
    earliest: QueueOffsets,
    latest: QueueOffsets,
    rest: QueueOffsets,
) -> QueueOffsets:
    """An offset for each queue there is; those that the user did not name are where `rest` is."""
    if isinstance(edge, str):
        return dict(earliest if edge == "earliest" else latest)
    if unknown := sorted(edge.keys() - latest.keys()):
        topic, broker, queue_id = unknown[0]
        raise ConfigError(f"topic {topic!r} has no queue {queue_id} of a broker {broker!r}")
    marks = {EARLIEST_MARK: earliest, LATEST_MARK: latest}
    return {
        queue: marks[edge[queue]][queue] if edge.get(queue, 0) < 0 else edge.get(queue, offset)
        for queue, offset in rest.items()
    }


def _lookup(
    place: AtTime | TimeAgo | GroupProgress, asked: OffsetLookup
) -> Callable[[QueueKey, tuple[int, int]], int]:
    """What finds the offset of a queue between its first and its next message."""
    if isinstance(place, GroupProgress):
        group = place.group

        def stands(queue: QueueKey, span: tuple[int, int]) -> int:
            committed = asked.committed(queue, group)
            return span[0] if committed is None else committed

        return stands
    ms = place.ms if isinstance(place, AtTime) else asked.now_ms() - place.ms
    return lambda queue, span: asked.first_since(queue, span, ms)


def _by_topic(edge: SpecByTopic, bounds: _Bounds, asked: OffsetLookup) -> QueueOffsets:
    found = dict(bounds[2])
    for topic in {topic for topic, _, _ in found}:
        own = edge.topics.get(topic, edge.topics.get(OTHER_TOPICS))
        if own is not None:
            earliest, latest, rest = (_of_one_topic(offsets, topic) for offsets in bounds)
            found |= _resolve(own, (earliest, latest, rest), asked)
    return found


def _of_one_topic(offsets: QueueOffsets, topic: str) -> QueueOffsets:
    return {queue: at for queue, at in offsets.items() if queue[0] == topic}
