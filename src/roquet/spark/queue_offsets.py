"""Offsets of queues, ranges of them, and the JSON in which Spark keeps them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from roquet.model.errors import ConfigError

QueueKey = tuple[str, str, int]
"""A topic, a broker's name and the id of one of its queues."""

QueueOffsets = dict[QueueKey, int]
"""For each queue the offset of the next message."""

EARLIEST_MARK: Final = -2
LATEST_MARK: Final = -1
"""Offsets that mean an edge; Spark's Kafka source uses the same."""

TopicIds = dict[tuple[str, str], str]
"""By topic and broker which topic of that name it is (rules.topic_id), where that is known."""

TOPIC_IDS_KEY: Final = "topic ids"
"""Stands among the topics of a checkpoint's offsets, as `AWAY_KEY` does in a report."""

AWAY_KEY: Final = "brokers away"
"""Stands among the topics of a report; no topic has blanks in its name."""

SHOWN_MAX: Final = 120
"""Characters of foreign offsets that an error shows."""


class OffsetRange(msgspec.Struct, frozen=True):
    """A range of one queue's messages, the end excluded."""

    topic: str
    broker: str
    queue_id: int
    start: int
    end: int
    topic_id: str | None = None
    """Which topic of that name it is; None takes any."""

    @property
    def queue(self) -> QueueKey:
        """Whose messages they are."""
        return self.topic, self.broker, self.queue_id

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, start: int, end: int) -> "OffsetRange":
        """Another range of the same queue."""
        return OffsetRange(self.topic, self.broker, self.queue_id, start, end, self.topic_id)


OffsetsJson = dict[str, dict[str, dict[str, int]]]
"""Offsets as JSON: {topic: {broker: {queue id: offset}}}."""


def queue_text(queue: QueueKey) -> str:
    """A queue, for a sentence."""
    topic, broker, queue_id = queue
    return f"topic {topic!r}, queue {queue_id} of broker {broker!r}"


def to_json(offsets: QueueOffsets) -> OffsetsJson:
    """The form in which Spark keeps offsets, sorted."""
    nested: OffsetsJson = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> QueueOffsets:
    """Offsets as Spark kept them."""
    return {
        (topic, broker, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        if topic != TOPIC_IDS_KEY
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def checkpoint(offsets: QueueOffsets, ids: TopicIds) -> dict[str, Any]:
    """Offsets with the ids of their topics, as a stream keeps them."""
    kept: dict[str, Any] = dict(to_json(offsets))
    for topic, broker in sorted({(topic, broker) for topic, broker, _ in offsets} & ids.keys()):
        kept.setdefault(TOPIC_IDS_KEY, {}).setdefault(topic, {})[broker] = ids[topic, broker]
    return kept


def topic_ids_of_checkpoint(kept: Mapping[str, Any]) -> TopicIds:
    """The ids in a checkpoint; none in one that an earlier version made."""
    found = kept.get(TOPIC_IDS_KEY, {})
    return {(topic, broker): one for topic, ids in found.items() for broker, one in ids.items()}


def offsets_of_checkpoint(kept: Any, is_read: Callable[[str], bool]) -> QueueOffsets:
    """Offsets of a checkpoint; ConfigError when they are not ours, or of topics not read here."""
    if not is_offsets_json(kept):
        raise ConfigError(
            f"the checkpoint's offsets are {_shorten(kept)}, not by topic, broker and queue:"
            f" another source or another version of this one wrote them; {_NEW_CHECKPOINT}"
        )
    for topic in sorted(kept.keys() - {TOPIC_IDS_KEY}):
        if not is_read(topic):
            raise ConfigError(
                f"the checkpoint is of topic {topic!r}, which this query does not read: read it"
                f" again, or {_NEW_CHECKPOINT}"
            )
    return from_json(kept)


_NEW_CHECKPOINT: Final = "choose a new checkpointLocation and say in startingOffsets where to begin"


def is_offsets_json(kept: Any) -> bool:
    """Whether this may be of `to_json`."""
    if not isinstance(kept, dict) or not all(isinstance(b, dict) for b in kept.values()):
        return False
    queues = [
        q for topic, brokers in kept.items() if topic != TOPIC_IDS_KEY for q in brokers.values()
    ]
    return all(isinstance(found, dict) for found in queues) and all(
        queue_id.isdecimal() and type(offset) is int
        for found in queues
        for queue_id, offset in found.items()
    )


def _shorten(kept: Any) -> str:
    text = json.dumps(kept)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def latest_to_json(latest: QueueOffsets, away_s: Mapping[str, int]) -> OffsetsJson:
    """How far queues reach as a query's progress tells it, and for how long brokers are away."""
    told = to_json(latest)
    if away_s:
        told[AWAY_KEY] = {
            broker: {"seconds": seconds} for broker, seconds in sorted(away_s.items())
        }
    return told


def latest_from_json(told: OffsetsJson) -> tuple[QueueOffsets, Mapping[str, int]]:
    """What `latest_to_json` was made of."""
    away = {broker: found["seconds"] for broker, found in told.get(AWAY_KEY, {}).items()}
    return from_json({topic: found for topic, found in told.items() if topic != AWAY_KEY}), away


def ranges(start: QueueOffsets, end: QueueOffsets) -> list[OffsetRange]:
    """What lies between two sets of offsets, sorted; queues with nothing new are left out.

    So are those that the start does not know: the end says where they will begin.
    """
    return [
        OffsetRange(*queue, start[queue], last)
        for queue, last in sorted(end.items())
        if start.get(queue, last) < last
    ]
