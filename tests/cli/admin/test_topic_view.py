from roquet.admin.topics import TopicBrokerInfo, TopicInfo, TopicQueueInfo
from roquet.cli.admin import topic_view


def test_a_topic_is_shown_with_everything_known() -> None:
    place = TopicBrokerInfo(broker="broker-a", read_queues=1, write_queues=1, permission="RW")
    queue = TopicQueueInfo(broker="broker-a", queue_id=0, begin=0, end=12, stored_ms=None)
    topic = TopicInfo(
        name="orders",
        messages=12,
        places=[place],
        queues=[queue],
        groups=[],
        order_conf=None,
        problems=[],
    )
    headline, readers, *tables = topic_view.topic_parts(topic)
    assert (headline, readers) == ("orders  12 messages", "read by: nobody")
    assert len(tables) == 2
