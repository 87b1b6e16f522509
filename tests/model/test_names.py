from collections.abc import Callable
from typing import Any

import pytest

from roquet.model import names
from roquet.model.errors import UsageError

# As Apache's TopicValidator judges them (vectors/misc.jsonl).
VALID = ["TopicTest", "%RETRY%g", "topic|x", "TBW102", "rmq_sys_x", "a_b-c", "0"]
ILLEGAL = ["", "a b", "主", "a.b", "a\n", "topic/1"]


@pytest.mark.parametrize("name", VALID)
def test_a_valid_name_has_no_fault(name: str) -> None:
    assert names.topic_fault(name) is None
    assert names.group_fault(name) is None
    assert names.check_topic(name) == name
    assert names.check_group(name) == name


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_name_is_the_users_fault(name: str) -> None:
    with pytest.raises(UsageError, match="topic name"):
        names.check_topic(name)
    with pytest.raises(UsageError, match="group name"):
        names.check_group(name)


def test_a_blank_name_is_called_blank() -> None:
    assert names.topic_fault("") == "the topic name is blank"
    assert names.group_fault("  ") == "the group name is blank"


def test_a_topic_may_be_127_characters_long() -> None:
    assert names.topic_fault("t" * 127) is None
    assert "128 characters long, 127 are allowed" in str(names.topic_fault("t" * 128))


def test_a_group_may_be_120_characters_long() -> None:
    assert names.group_fault("g" * 120) is None
    assert "121 characters long, 120 are allowed" in str(names.group_fault("g" * 121))


@pytest.mark.parametrize("derived", [names.retry_topic, names.dlq_topic])
def test_the_longest_group_still_has_a_retry_and_a_dead_letter_topic(
    derived: Callable[[str], str],
) -> None:
    assert names.topic_fault(derived("g" * names.GROUP_LENGTH_MAX)) is None


def test_retry_and_dead_letter_topics_are_known_by_their_names() -> None:
    assert names.retry_topic("billing") == "%RETRY%billing"
    assert names.dlq_topic("billing") == "%DLQ%billing"
    assert names.is_retry("%RETRY%billing")
    assert names.is_dlq("%DLQ%billing")
    assert not names.is_retry("%DLQ%billing")
    assert not names.is_dlq("billing")


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_ANY"])
def test_groups_of_the_system_are_known(group: str) -> None:
    assert names.is_system_group(group)


def test_a_users_group_is_not_the_systems() -> None:
    assert not names.is_system_group("billing")


def test_groups_of_our_own_tools_are_nobodys_work() -> None:
    tools = ["roquet-cli", "roquet-dashboard", "roquet-dlq", "roquet-spark"]
    assert [*map(names.is_internal_group, tools)] == [True] * 4
    assert names.is_internal_group("TOOLS_CONSUMER")
    assert not names.is_internal_group("billing")


def test_clients_may_not_send_to_the_topics_that_the_broker_fills() -> None:
    assert {names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC} <= names.BROKER_ONLY_TOPICS
    assert names.AUTO_CREATE_TOPIC not in names.BROKER_ONLY_TOPICS


def test_topics_that_clients_may_not_send_to() -> None:
    assert names.can_clients_send_to("orders")
    assert not names.can_clients_send_to(names.SCHEDULE_TOPIC)
    assert not names.can_clients_send_to(names.revive_topic("c"))


def test_popped_messages_come_again_in_a_topic_of_their_own() -> None:
    assert names.pop_retry_topic("pay", "eu_orders") == "%RETRY%pay+eu_orders"
    assert names.pop_retry_topic("pay_eu", "orders") == "%RETRY%pay_eu+orders"
    older = names.pop_retry_topic_v1("pay", "eu_orders")
    assert older == names.pop_retry_topic_v1("pay_eu", "orders") == "%RETRY%pay_eu_orders"
    assert names.is_retry(older)
    assert names.is_retry("%RETRY%pay+eu_orders")


@pytest.mark.parametrize(
    ("group", "topic", "origin"),
    [
        ("pay", "%RETRY%pay+eu_orders", "eu_orders"),
        ("pay", "%RETRY%pay_eu_orders", "eu_orders"),
        ("pay_eu", "%RETRY%pay_eu_orders", "orders"),
        ("pay", "%RETRY%pay", "%RETRY%pay"),
        ("pay", "%RETRY%pay_", "%RETRY%pay_"),
        ("pay", "%RETRY%payroll_x", "%RETRY%payroll_x"),
        ("pay", "orders", "orders"),
    ],
)
def test_a_group_knows_the_topic_of_its_retry_topic(group: str, topic: str, origin: str) -> None:
    assert names.retried_topic(group, topic) == origin


def test_an_older_name_of_a_retry_topic_may_be_of_several_topics() -> None:
    assert [*names.possible_origins("%RETRY%pay_eu_orders")] == ["eu_orders", "orders"]
    assert [*names.possible_origins("%RETRY%pay_eu+eu_orders")] == ["eu_orders"]
    assert [*names.possible_origins("%RETRY%pay")] == []


def test_a_retry_topic_names_its_group() -> None:
    assert names.group_of_retry("%RETRY%pay") == "pay"
    assert names.group_of_retry("%RETRY%pay+eu_orders") == "pay"
    assert names.group_of_retry("%RETRY%pay_eu_orders") == "pay_eu_orders"


@pytest.mark.parametrize("topic", ["a+b", "%DLQ%a+b", "%RETRY%a+", "%RETRY%+b", "%RETRY%a+b+c"])
def test_a_plus_is_in_no_name_but_that_of_a_retry_topic_of_popped_messages(topic: str) -> None:
    assert names.topic_fault("%RETRY%a+b") is names.topic_remark("%RETRY%a+b") is None
    assert "may hold only letters" in (names.topic_fault(topic) or "")
    assert "illegal characters" in (names.topic_remark(topic) or "")
    assert names.group_fault("%RETRY%a+b") is not None


def test_answers_to_requests_have_a_topic_of_their_cluster() -> None:
    assert names.reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


@pytest.mark.parametrize(
    "group",
    ["%RETRY%g", "%DLQ%g", "roquet-dlq", "DEFAULT_CONSUMER", "CLIENT_INNER_PRODUCER",
     "__MONITOR_CONSUMER", "TOOLS_CONSUMER", "CID_RMQ_SYS_X"],
)  # fmt: skip
def test_some_groups_are_not_for_consumers(group: str) -> None:
    assert not names.can_users_join(group)


def test_any_other_group_takes_consumers() -> None:
    assert names.can_users_join("billing")
    assert names.can_users_join("ns%billing")


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        (
            "a b",
            "The specified topic: a b, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("x" * 128, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
        (
            "%DLQ%" + "x" * 251,
            f"The specified topic is DLQ or Retry topic: %DLQ%{'x' * 251}, "
            "and it's longer than topic max length: 255",
        ),
        ("%RETRY%" + "x" * 200, None),
        ("orders", None),
    ],
)
def test_topic_errors_use_apaches_wording(topic: str, remark: str | None) -> None:
    assert names.topic_remark(topic) == remark


def test_a_name_that_is_no_text_is_refused() -> None:
    not_text: Any = 5
    assert names.group_fault(not_text) == "the group name is a text, not 5"
