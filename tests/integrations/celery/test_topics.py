"""Topic names of queues and exchanges."""

import re

from hypothesis import given
from hypothesis import strategies as st

from roquet.integrations.celery.topics import exchange_topic, queue_topic


def queue_of(topic: str) -> str:
    """The inverse, which shows that no two queues share a topic."""
    return re.sub(
        r"(?:__[0-9a-f]{2})+",
        lambda part: bytes.fromhex(part[0].replace("__", "")).decode("utf-8", "surrogatepass"),
        topic,
    )


@given(st.text(st.characters() | st.sampled_from("_e2.@")))
def test_no_two_queues_have_the_same_topic(queue: str) -> None:
    topic = queue_topic(queue)
    assert re.fullmatch("[A-Za-z0-9_-]*", topic)
    assert queue_of(topic) == queue


@given(st.text(), st.text())
def test_no_exchange_has_the_topic_of_a_queue(exchange: str, queue: str) -> None:
    assert exchange_topic(exchange) != queue_topic(queue)


def test_plain_names_stay_as_they_are() -> None:
    assert queue_topic("celery") == "celery"
    assert queue_topic("high_priority-2") == "high_priority-2"
    assert queue_topic("w@h.de") == "w__40h__2ede"
    assert exchange_topic("celeryev") == "celeryev__exchange"
