"""Offsets of queues, ranges of them, and the JSON in which Spark keeps them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from roquet.model.errors import ConfigError

QueueKey = tuple[str, str, int]
"""A topic, a broker's name and the id of one of its queues."""

QueueOffsets = dict[QueueKey, int]
"""The offset of the next message, by queue."""

EARLIEST_MARK: Final = -2
LATEST_MARK: Final = -1
"""Offsets that stand for an end of the queue; the numbers are those of Spark's Kafka source."""

TopicIds = dict[tuple[str, str], str]
"""Topic ids by (topic, broker); a deleted and recreated topic gets another id (rules.topic_id).

Topics whose id is not known are left out.
"""

TOPIC_IDS_KEY: Final = "topic ids"
"""Key of the topic ids among the topics of a checkpoint; no topic has blanks in its name."""

AWAY_KEY: Final = "brokers away"
"""Key of the unreachable brokers among the topics of a progress report."""

SHOWN_MAX: Final = 120
"""Most characters of unreadable offsets that an error shows."""


class OffsetRange(msgspec.Struct, frozen=True):
    """A half-open range [start, end) of one queue's offsets."""

    topic: str
    broker: str
    queue_id: int
    start: int
    end: int
    topic_id: str | None = None
    """The id of the topic; None accepts any topic of that name."""

    @property
    def queue(self) -> QueueKey:
        """The queue that the range belongs to."""
        return self.topic, self.broker, self.queue_id

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, start: int, end: int) -> "OffsetRange":
        """The range [start, end) of this queue and topic."""
        return OffsetRange(self.topic, self.broker, self.queue_id, start, end, self.topic_id)


OffsetsJson = dict[str, dict[str, dict[str, int]]]
"""Offsets as JSON: {topic: {broker: {queue id: offset}}}."""


def queue_text(queue: QueueKey) -> str:
    """Text of a queue for error messages: topic 'orders', queue 0 of broker 'broker-a'."""
    topic, broker, queue_id = queue
    return f"topic {topic!r}, queue {queue_id} of broker {broker!r}"


def to_json(offsets: QueueOffsets) -> OffsetsJson:
    """Offsets as nested dicts for Spark's checkpoint, sorted."""
    nested: OffsetsJson = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> QueueOffsets:
    """Offsets from the nested dicts of a checkpoint; the topic ids among them are skipped."""
    return {
        (topic, broker, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        if topic != TOPIC_IDS_KEY
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def checkpoint(offsets: QueueOffsets, ids: TopicIds) -> dict[str, Any]:
    """Offsets and the ids of their topics as JSON for a stream's checkpoint."""
    saved: dict[str, Any] = dict(to_json(offsets))
    for topic, broker in sorted({(topic, broker) for topic, broker, _ in offsets} & ids.keys()):
        saved.setdefault(TOPIC_IDS_KEY, {}).setdefault(topic, {})[broker] = ids[topic, broker]
    return saved


def topic_ids_of_checkpoint(saved: Mapping[str, Any]) -> TopicIds:
    """Topic ids of a checkpoint; empty for one written by a version without ids."""
    by_topic = saved.get(TOPIC_IDS_KEY, {})
    return {
        (topic, broker): topic_id
        for topic, ids in by_topic.items()
        for broker, topic_id in ids.items()
    }


def offsets_of_checkpoint(saved: Any, is_read: Callable[[str], bool]) -> QueueOffsets:
    """Offsets of a checkpoint.

    Raises ConfigError when another source wrote them, or when they name a topic that `is_read`
    denies.
    """
    if not is_offsets_json(saved):
        text = json.dumps(saved)
        shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
        raise ConfigError(
            f"the checkpoint's offsets are {shown}, not by topic, broker and queue:"
            f" another source or another version of this one wrote them; {_NEW_CHECKPOINT}"
        )
    for topic in sorted(saved.keys() - {TOPIC_IDS_KEY}):
        if not is_read(topic):
            raise ConfigError(
                f"the checkpoint is of topic {topic!r}, which this query does not read: read it"
                f" again, or {_NEW_CHECKPOINT}"
            )
    return from_json(saved)


_NEW_CHECKPOINT: Final = "choose a new checkpointLocation and say in startingOffsets where to begin"


def is_offsets_json(value: Any) -> bool:
    """Whether this JSON value has the shape that `to_json` and `checkpoint` produce."""
    if not isinstance(value, dict) or not all(isinstance(b, dict) for b in value.values()):
        return False
    queues = [
        q for topic, brokers in value.items() if topic != TOPIC_IDS_KEY for q in brokers.values()
    ]
    return all(isinstance(offsets, dict) for offsets in queues) and all(
        queue_id.isdecimal() and type(offset) is int
        for offsets in queues
        for queue_id, offset in offsets.items()
    )


def latest_to_json(latest: QueueOffsets, away_s: Mapping[str, int]) -> OffsetsJson:
    """Latest offsets, and the seconds that brokers are away, for a query's progress report."""
    report = to_json(latest)
    if away_s:
        report[AWAY_KEY] = {
            broker: {"seconds": seconds} for broker, seconds in sorted(away_s.items())
        }
    return report


def latest_from_json(report: OffsetsJson) -> tuple[QueueOffsets, Mapping[str, int]]:
    """Latest offsets, and seconds away by broker, of a report that `latest_to_json` made."""
    away = {broker: entry["seconds"] for broker, entry in report.get(AWAY_KEY, {}).items()}
    by_topic = {topic: brokers for topic, brokers in report.items() if topic != AWAY_KEY}
    return from_json(by_topic), away


def ranges(start: QueueOffsets, end: QueueOffsets) -> list[OffsetRange]:
    """The non-empty ranges from `start` to `end`, sorted by queue.

    Queues missing in `start` are left out: `end` says where they will begin.
    """
    return [
        OffsetRange(*queue, start[queue], last)
        for queue, last in sorted(end.items())
        if start.get(queue, last) < last
    ]


def unread(next_offset: int, end: int, begin: int = 0) -> int:
    """The lag of a reader in one queue: messages from its next offset up to the queue's end.

    Messages before `begin` were deleted, and wait no more.
    """
    return max(end - max(next_offset, begin), 0)
