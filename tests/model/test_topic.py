import msgspec
import pytest

from roquet.model.topic import (
    DataVersion,
    GroupTable,
    OffsetTable,
    SubscriptionGroup,
    TopicConfig,
    TopicTable,
)


def test_a_topics_json_is_javas() -> None:
    java = (
        b'{"attributes":{},"order":true,"perm":50,"readQueueNums":180,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"Topic6","topicSysFlag":-1,'
        b'"writeQueueNums":168}'
    )
    topic = msgspec.json.decode(java, type=TopicConfig)
    assert (topic.topic_name, topic.read_queue_nums, topic.order) == ("Topic6", 180, True)
    assert msgspec.json.encode(topic, order="sorted") == java


@pytest.mark.parametrize(
    ("perm", "readable", "writable"),
    [(6, True, True), (4, True, False), (2, False, True), (0, False, False)],
)
def test_the_permission_has_a_read_and_a_write_flag(
    perm: int, readable: bool, writable: bool
) -> None:
    topic = TopicConfig(topic_name="orders", perm=perm)
    assert (topic.readable, topic.writable) == (readable, writable)


def test_a_change_makes_a_newer_edition() -> None:
    first = DataVersion(timestamp=100, counter=7, state_version=3)
    assert first.next(250) == DataVersion(timestamp=250, counter=8, state_version=3)
    assert first.counter == 7


def test_a_groups_json_keeps_its_retry_policy_as_it_came() -> None:
    java = b"""{"groupName":"billing","retryMaxTimes":-1,"groupRetryPolicy":{"type":"EXPONENTIAL",
    "exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}}}"""
    group = msgspec.json.decode(java, type=SubscriptionGroup)
    assert group.retry_max_times == -1
    assert group.group_retry_policy == {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 5000, "max": 7_200_000, "multiplier": 2},
    }
    assert msgspec.json.decode(msgspec.json.encode(group), type=SubscriptionGroup) == group


def test_a_new_group_may_do_everything_and_tries_sixteen_times() -> None:
    group = SubscriptionGroup(group_name="billing")
    assert group.consume_enable
    assert group.consume_broadcast_enable
    assert (group.retry_max_times, group.retry_queue_nums) == (16, 1)


def test_tables_are_found_under_javas_names() -> None:
    topics = TopicTable(topic_config_table={"orders": TopicConfig(topic_name="orders")})
    groups = GroupTable(subscription_group_table={"g": SubscriptionGroup(group_name="g")})
    assert msgspec.json.decode(msgspec.json.encode(topics)).keys() == {
        "topicConfigTable",
        "dataVersion",
        "topicIds",  # ours: Apache's brokers ignore it
    }
    assert msgspec.json.decode(msgspec.json.encode(groups)).keys() == {
        "subscriptionGroupTable",
        "forbiddenTable",
        "dataVersion",
    }


def test_progress_is_kept_by_queue_number() -> None:
    table = msgspec.json.decode(
        b'{"offsetTable":{"orders@billing":{"0":12,"3":7}}}', type=OffsetTable
    )
    assert table.offset_table == {"orders@billing": {0: 12, 3: 7}}


def test_an_empty_table_is_the_first_edition() -> None:
    assert TopicTable().data_version == DataVersion(timestamp=0, counter=0)
    assert TopicTable() == msgspec.json.decode(b"{}", type=TopicTable)


def test_versions_are_ordered_by_epoch_then_by_changes_then_by_time() -> None:
    oldest_last = [
        DataVersion(state_version=1, counter=0, timestamp=0),
        DataVersion(state_version=0, counter=6, timestamp=800),
        DataVersion(state_version=0, counter=5, timestamp=901),
        DataVersion(state_version=0, counter=5, timestamp=900),
    ]
    assert sorted(oldest_last, key=lambda version: version.order) == oldest_last[::-1]
