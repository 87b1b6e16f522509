"""Offsets of queues, ranges of them, and the JSON in which Spark keeps them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from roquet.model.errors import ConfigError

Queue = tuple[str, str, int]
"""A topic, a broker's name and the id of one of its queues."""

Offsets = dict[Queue, int]
"""For each queue the offset of the next message."""

EARLIEST_MARK: Final = -2
LATEST_MARK: Final = -1
"""Offsets that mean an edge; Spark's Kafka source uses the same."""

TopicIds = dict[tuple[str, str], str]
"""By topic and broker which topic of that name it is (rules.topic_id), where that is known."""

IDS: Final = "topic ids"
"""Stands among the topics of a checkpoint's offsets, as `AWAY` does in a report."""

AWAY: Final = "brokers away"
"""Stands among the topics of a report; no topic has blanks in its name."""

SHOWN_MAX: Final = 120
"""Characters of foreign offsets that an error shows."""


class Piece(msgspec.Struct, frozen=True):
    """A range of one queue's messages, the end excluded."""

    topic: str
    broker: str
    queue_id: int
    start: int
    end: int
    topic_id: str | None = None
    """Which topic of that name it is; None takes any."""

    @property
    def queue(self) -> Queue:
        """Whose messages they are."""
        return self.topic, self.broker, self.queue_id

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, start: int, end: int) -> "Piece":
        """Another range of the same queue."""
        return Piece(self.topic, self.broker, self.queue_id, start, end, self.topic_id)


Nested = dict[str, dict[str, dict[str, int]]]
"""Offsets as JSON: {topic: {broker: {queue id: offset}}}."""


def named(queue: Queue) -> str:
    """A queue, for a sentence."""
    topic, broker, queue_id = queue
    return f"topic {topic!r}, queue {queue_id} of broker {broker!r}"


def to_json(offsets: Offsets) -> Nested:
    """The form in which Spark keeps offsets, sorted."""
    nested: Nested = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    """Offsets as Spark kept them."""
    return {
        (topic, broker, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        if topic != IDS
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def checkpoint(offsets: Offsets, ids: TopicIds) -> dict[str, Any]:
    """Offsets with the ids of their topics, as a stream keeps them."""
    kept: dict[str, Any] = dict(to_json(offsets))
    for topic, broker in sorted({(topic, broker) for topic, broker, _ in offsets} & ids.keys()):
        kept.setdefault(IDS, {}).setdefault(topic, {})[broker] = ids[topic, broker]
    return kept


def topic_ids(kept: Mapping[str, Any]) -> TopicIds:
    """The ids in a checkpoint; none in one that an earlier version made."""
    found = kept.get(IDS, {})
    return {(topic, broker): one for topic, ids in found.items() for broker, one in ids.items()}


def checkpointed(kept: Any, is_read: Callable[[str], bool]) -> Offsets:
    """Offsets of a checkpoint; ConfigError when they are not ours, or of topics not read here."""
    if not is_nested(kept):
        raise ConfigError(
            f"the checkpoint's offsets are {_shortened(kept)}, not by topic, broker and queue:"
            f" another source or another version of this one wrote them; {_FRESH}"
        )
    for topic in sorted(kept.keys() - {IDS}):
        if not is_read(topic):
            raise ConfigError(
                f"the checkpoint is of topic {topic!r}, which this query does not read: read it"
                f" again, or {_FRESH}"
            )
    return from_json(kept)


_FRESH: Final = "choose a new checkpointLocation and say in startingOffsets where to begin"


def is_nested(kept: Any) -> bool:
    """Whether this may be of `to_json`."""
    if not isinstance(kept, dict) or not all(isinstance(b, dict) for b in kept.values()):
        return False
    queues = [q for topic, brokers in kept.items() if topic != IDS for q in brokers.values()]
    return all(isinstance(found, dict) for found in queues) and all(
        queue_id.isdecimal() and type(offset) is int
        for found in queues
        for queue_id, offset in found.items()
    )


def _shortened(kept: Any) -> str:
    text = json.dumps(kept)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def report(latest: Offsets, away_s: Mapping[str, int]) -> Nested:
    """How far queues reach as a query's progress tells it, and for how long brokers are away."""
    told = to_json(latest)
    if away_s:
        told[AWAY] = {broker: {"seconds": seconds} for broker, seconds in sorted(away_s.items())}
    return told


def reported(told: Nested) -> tuple[Offsets, Mapping[str, int]]:
    """What `report` was made of."""
    away = {broker: found["seconds"] for broker, found in told.get(AWAY, {}).items()}
    return from_json({topic: found for topic, found in told.items() if topic != AWAY}), away


def ranges(start: Offsets, end: Offsets) -> list[Piece]:
    """What lies between two sets of offsets, sorted; queues with nothing new are left out.

    So are those that the start does not know: the end says where they will begin.
    """
    return [
        Piece(*queue, start[queue], last)
        for queue, last in sorted(end.items())
        if start.get(queue, last) < last
    ]
