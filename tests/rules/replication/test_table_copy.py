from collections.abc import Mapping

import pytest

from roquet.model.topic import DataVersion, SubscriptionGroup, TopicConfig
from roquet.rules.replication import table_copy

VERSION = DataVersion(counter=7)


def configs(*names: str) -> dict[str, TopicConfig]:
    return {name: TopicConfig(topic_name=name) for name in names}


def changes(
    own: Mapping[str, TopicConfig],
    master: Mapping[str, TopicConfig],
    *,
    deleted: Mapping[str, int] | None = None,
    buried: Mapping[str, int] | None = None,
    with_messages: tuple[str, ...] = (),
    seen_end: int | None = None,
) -> table_copy.TopicChanges:
    return table_copy.topic_changes(
        own,
        table_copy.MasterTopics(configs=master, version=VERSION, deleted=deleted),
        deleted_before=lambda topic: (buried or {}).get(topic, 0),
        has_messages=lambda topic: topic in with_messages,
        is_system=lambda topic: topic == "system",
        seen_end=seen_end,
    )


def test_new_topics_and_changed_settings_are_taken() -> None:
    changed = {"b": TopicConfig(topic_name="b", perm=4)}
    found = changes(configs("a", "b"), configs("a", "c") | changed)
    assert {config.topic_name for config in found.changed} == {"b", "c"}
    assert (found.deleted, found.dropped, found.unproven) == ({}, (), ())


def test_a_tombstone_that_is_new_here_deletes_what_is_in_front_of_it() -> None:
    found = changes(
        configs("a", "b"),
        configs("a"),
        deleted={"a": 10, "b": 20, "c": 30},
        buried={"a": 10},
        with_messages=("a", "b"),
    )
    assert (found.deleted, found.dropped, found.unproven) == ({"b": 20, "c": 30}, (), ())


def test_a_topic_without_a_tombstone_stays_with_its_messages() -> None:
    found = changes(configs("a", "b", "system"), {}, deleted={}, with_messages=("a",), seen_end=100)
    assert (found.deleted, found.dropped, found.unproven) == ({}, ("b",), ("a",))


@pytest.mark.parametrize(
    ("seen_end", "deleted", "unproven"), [(100, {"a": 100}, ()), (None, {}, ("a",))]
)
def test_where_there_are_no_tombstones_a_topic_that_lacks_was_deleted_before_that_position(
    seen_end: int | None, deleted: dict[str, int], unproven: tuple[str, ...]
) -> None:
    found = changes(configs("a"), {}, with_messages=("a",), seen_end=seen_end)
    assert (found.deleted, found.unproven) == (deleted, unproven)


def test_a_version_goes_back_by_epoch_then_by_count() -> None:
    before = DataVersion(state_version=2, counter=5, timestamp=9)
    assert table_copy.is_not_older(before, None)
    assert table_copy.is_not_older(before, before)
    assert table_copy.is_not_older(DataVersion(state_version=3), before)
    assert not table_copy.is_not_older(
        DataVersion(state_version=2, counter=4, timestamp=99), before
    )


def test_topics_that_no_broker_may_have_are_left_out() -> None:
    table = configs("orders", "%RETRY%g+orders") | {
        "a/b": TopicConfig(),
        "": TopicConfig(),
        "reads": TopicConfig(read_queue_nums=-1),
        "writes": TopicConfig(write_queue_nums=2**20),
        "perm": TopicConfig(perm=16),
        "named": TopicConfig(topic_name="other"),
    }
    assert table_copy.legal_topics(table) == configs("orders", "%RETRY%g+orders", "named")


def test_groups_that_no_broker_may_have_are_left_out() -> None:
    table = {"g": SubscriptionGroup(), "h": SubscriptionGroup(group_name="h"), "a b": None}
    assert table_copy.legal_groups(table) == {  # type: ignore[arg-type]
        "g": SubscriptionGroup(group_name="g"),
        "h": SubscriptionGroup(group_name="h"),
    }
    forbidden = {"g": {"t": 4}, "h": {}, "a b": {"t": 4}, "i": {"a/b": 4}}
    assert table_copy.legal_forbidden(forbidden) == {"g": {"t": 4}}


def test_offsets_that_cannot_be_are_left_out() -> None:
    table = {
        "t@g": {0: 5, 1: -1, -1: 5, 2**20: 5, 2: 2**63},
        "none@g": {0: -1},
        "removed@g": {},
        "t": {0: 1},
        "a/b@g": {0: 1},
        "t@g@h": {0: 1},
    }
    assert table_copy.legal_offsets(table) == {"t@g": {0: 5}, "removed@g": {}}


def test_delay_levels_and_tombstones_that_cannot_be_are_left_out() -> None:
    assert table_copy.legal_delay_offsets({0: 1, 1: 2, 3: -1, 5_000: 1}) == {1: 2}
    assert table_copy.legal_tombstones({"t": 5, "u": 11, "v": -1, "a/b": 1}, 10) == {"t": 5}
