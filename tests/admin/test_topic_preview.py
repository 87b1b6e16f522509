import pytest

from roquet.admin import topic_preview
from roquet.admin.topic_preview import TopicChange
from roquet.admin.topics import TopicBrokerInfo, TopicInfo, TopicQueueInfo, TopicSettings


def topic(reads: int = 6, writes: int = 6, *, groups: tuple[str, ...] = ()) -> TopicInfo:
    """On two brokers, with a message in each queue."""
    names = ("broker-a", "broker-b")
    return TopicInfo(
        name="orders",
        messages=2 * max(reads, writes),
        places=[
            TopicBrokerInfo(broker=name, read_queues=reads, write_queues=writes, permission="RW")
            for name in names
        ],
        queues=[
            TopicQueueInfo(broker=name, queue_id=number, begin=0, end=1, stored_ms=None)
            for name in names
            for number in range(max(reads, writes))
        ],
        groups=list(groups),
        order_conf=None,
        problems=[],
    )


@pytest.mark.parametrize(
    ("now", "wanted_queues", "hides"),
    [
        ((6, 6), (3, 9), True),
        ((6, 6), (3, None), True),
        ((6, 6), (None, 9), True),
        ((6, 3), (3, None), True),  # those that leave, before anybody has seen to it
        ((6, 6), (None, 3), False),
        ((6, 6), (9, 9), False),
        ((6, 6), (None, None), False),
        ((3, 6), (None, None), False),  # as it is already
        ((3, 6), (6, None), False),
    ],
)
def test_messages_are_hidden_by_fewer_queues_to_read_than_before_or_than_to_write(
    now: tuple[int, int], wanted_queues: tuple[int | None, int | None], hides: bool
) -> None:
    settings = TopicSettings(read_queues=wanted_queues[0], write_queues=wanted_queues[1])
    assert TopicChange(topic(*now), settings, ["broker-a", "broker-b"]).hides is hides


def test_a_change_counts_the_messages_of_its_own_brokers_alone() -> None:
    change = TopicChange(topic(), TopicSettings(read_queues=4), ["broker-b"])
    first, second = change.preview()
    assert first == "broker-b: 6 queues to write and 6 to read, then 6 and 4"
    assert "2 stored messages" in second
    assert change.fields() == {
        "name": "orders",
        "brokers": [{"broker": "broker-b", "read_queues": 4, "write_queues": 6}],
        "hidden": 2,
    }


def test_a_change_of_permissions_is_shown() -> None:
    (line,) = TopicChange(topic(), TopicSettings(permission=4), ["broker-a"]).preview()
    assert line == ("broker-a: 6 queues to write and 6 to read, as before; permission RW, then R")


def test_a_resize_lists_the_groups_it_waits_for_and_the_others() -> None:
    info = topic(groups=("audit", "billing"))
    *_, left, spark, to_stderr = topic_preview.resize_preview(info, 4, ["audit"])
    assert spark.startswith("not waited for: Spark streams, archives and materialized tables")
    assert left.startswith(
        "the queues from 4 on are removed once billing have read them; 4 stored messages"
    )
    assert to_stderr.startswith(
        "not waited for: audit; members that broadcast keep their own progress"
    )
    assert topic_preview.resize_fields(info, 4, ["audit"])["not_waited_for"] == ["audit"]
    more = list(topic_preview.resize_preview(info, 8, ["audit"]))
    assert more == [
        f"{b}: 6 queues to write and 6 to read, then 8" for b in ("broker-a", "broker-b")
    ]
    fields = topic_preview.resize_fields(info, 8, ["audit"])
    assert (fields["messages"], fields["not_waited_for"]) == (0, [])


def test_a_deletion_shows_the_messages_and_the_groups_that_read_them() -> None:
    lines = list(topic_preview.delete_preview(topic(groups=("billing",))))
    assert lines == ["orders on broker-a, broker-b: 12 messages", "groups that read it: billing"]
    assert topic_preview.delete_fields(topic())["messages"] == 12
