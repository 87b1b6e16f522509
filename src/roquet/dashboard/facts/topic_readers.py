"""Topic readers: the groups that read a topic, their lag in it, and who owns its queues."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from roquet.admin.group_info import GroupInfo, GroupQueueInfo


class TopicReader(msgspec.Struct, frozen=True, kw_only=True):
    """A group that reads a topic; numbers are of the newest sample, None where it has none."""

    group: str
    members: int | None = None
    lag: int | None = None
    """Messages of this topic alone."""


class QueueOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a group that own a queue, as its broker sees it."""

    broker: str
    queue_id: int
    group: str
    owners: Sequence[str]
    """Client ids; more than one where members do not agree."""


def topic_readers(
    topic: str, groups: Sequence[str], sample: Mapping[str, GroupInfo]
) -> list[TopicReader]:
    """The groups that read a topic, in their order."""
    return [_reader(topic, name, sample.get(name)) for name in groups]


def queue_owners(
    topic: str, groups: Sequence[str], sample: Mapping[str, GroupInfo]
) -> list[QueueOwner]:
    """The owners of a topic's queues that are known, by group."""
    return [
        QueueOwner(
            broker=queue.broker, queue_id=queue.queue_id, group=name, owners=queue.owners or ()
        )
        for name in groups
        for queue in _queues(topic, sample.get(name))
        if queue.owners
    ]


def _reader(topic: str, name: str, info: GroupInfo | None) -> TopicReader:
    if info is None:
        return TopicReader(group=name)
    lag = None if info.lag is None else sum(queue.lag for queue in _queues(topic, info))
    return TopicReader(group=name, members=info.member_count, lag=lag)


def _queues(topic: str, info: GroupInfo | None) -> Iterator[GroupQueueInfo]:
    return (queue for queue in (info.queues if info else ()) if queue.topic == topic)
