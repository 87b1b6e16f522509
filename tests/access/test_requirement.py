"""Requirements made from header fields."""

from roquet.access.requirement import (
    RequestFacts,
    all_of,
    group_and_topic,
    own_cluster,
    stored_message,
    topic_field,
    topic_resources,
)
from roquet.model.access import Action

GET = (Action.GET,)


def test_a_retry_topic_is_its_groups_and_a_dead_letter_topic_is_not() -> None:
    assert [*map(str, topic_resources("%RETRY%g"))] == ["Group:g"]
    assert [*map(str, topic_resources("%DLQ%g"))] == ["Topic:%DLQ%g"]
    assert [*map(str, topic_resources("%RETRY%g+t"))] == ["Group:g", "Topic:t"]
    assert [*map(str, topic_resources("%RETRY%g_t"))] == ["Group:g_t"]


def test_a_requirement_names_the_fields_that_it_follows_from() -> None:
    assert group_and_topic(GET).fields == ("consumerGroup", "topic")
    assert own_cluster(GET).fields == ()
    stored = stored_message("offset", GET, GET)
    assert stored.fields is None
    assert all_of(topic_field("topic", GET), stored, own_cluster(GET)).fields is None


def test_a_name_that_is_missing_or_empty_needs_nothing() -> None:
    for fields in ({}, {"topic": ""}):
        facts = RequestFacts(fields, b"", "c", lambda _: None)
        assert list(topic_field("topic", GET).needs(facts)) == []
