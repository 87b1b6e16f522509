from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.dashboard.facts.topic_readers import (
    QueueOwner,
    TopicReader,
    queue_owners,
    topic_readers,
)


def queue(topic: str, queue_id: int, lag: int, owners: list[str] | None) -> GroupQueueInfo:
    return GroupQueueInfo(
        topic=topic, broker="broker-a", queue_id=queue_id, owners=owners, committed=0, end=lag,
        lag=lag, fault=None,
    )  # fmt: skip


SAMPLE = {
    "billing": GroupInfo(
        name="billing", message_model=None, consume_type=None, lag=12, members=[], assignments=[],
        queues=[
            queue("orders", 0, 3, ["c1"]), queue("orders", 1, 4, []), queue("orders", 2, 0, None),
            queue("clicks", 0, 5, ["c2"]),
        ],
        problems=[],
    )
}  # fmt: skip


def test_the_lag_of_a_reader_is_that_of_the_topic_alone() -> None:
    assert topic_readers("orders", ["audit", "billing"], SAMPLE) == [
        TopicReader(group="audit"),
        TopicReader(group="billing", members=0, lag=7),
    ]


def test_queues_without_a_known_owner_are_left_out() -> None:
    assert queue_owners("orders", ["audit", "billing"], SAMPLE) == [
        QueueOwner(broker="broker-a", queue_id=0, group="billing", owners=["c1"])
    ]
