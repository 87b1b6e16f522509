import logging

import pytest
from tests.broker.conftest import not_none

from roquet.broker.ingest.destination import Destinations
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.topics import Topics
from roquet.model.topic import TopicConfig
from roquet.testing.clock import VirtualClock


def homes(*, auto_create: bool = True) -> Destinations:
    topics = Topics(None, BrokerConfig(), 0)
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=2), 0)
    settings = RuntimeSettings(BrokerConfig(auto_create_topic=auto_create, default_queue_count=3))
    return Destinations(topics=topics, clock=VirtualClock(), settings=settings)


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [("0", 0), ("1", 1), ("3", 1), ("4", 0), ("7", 1), ("", 0), ("x", 0), ("-1", 0)],
)
def test_a_message_goes_to_its_queue_or_one_that_takes_messages(text: str, queue_id: int) -> None:
    assert homes().queue("orders", text) == queue_id


def test_a_topic_that_is_gone_is_made_again_with_room_for_the_queue() -> None:
    destinations = homes()
    assert destinations.queue("bills", "11") == 11
    made = not_none(destinations.topics.get("bills"))
    assert (made.read_queue_nums, made.write_queue_nums) == (12, 12)


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
def test_a_group_s_topic_comes_again_even_where_others_do_not(topic: str) -> None:
    destinations = homes(auto_create=False)
    assert destinations.queue(topic, "0") == 0
    assert destinations.topics.get(topic) is not None


def test_settings_change_while_messages_wait() -> None:
    destinations = homes()
    destinations.settings.change({"auto_create_topic": "false"}, 0)
    destinations.queue("bills", "0")
    assert destinations.topics.get("bills") is None
    destinations.settings.change({"auto_create_topic": "true"}, 0)
    destinations.queue("bills", "0")
    assert not_none(destinations.topics.get("bills")).write_queue_nums == 3


def test_messages_of_a_deleted_topic_wait_until_it_is_created_if_creation_is_not_automatic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    destinations = homes(auto_create=False)
    with caplog.at_level(logging.WARNING):
        assert destinations.queue("bills", "3") == 3
    assert destinations.topics.get("bills") is None
    assert "create it" in caplog.text
