"""Topic patterns select users' topics, and system topics only by name or prefix."""

import pytest

from roquet.model.errors import ConfigError
from roquet.spark.topic_pattern import matching, parse_pattern

TOPICS = [
    "orders", "orders-eu", "paid", "%RETRY%billing", "%DLQ%billing", "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer", "TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC",
]  # fmt: skip
HIDDEN = ["DefaultCluster", "broker-a"]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("orders", ("orders",)),
        ("orders.*", ("orders", "orders-eu")),
        ("order", ()),
        (".*", ("orders", "orders-eu", "paid")),
        ("paid|orders", ("orders", "paid")),
        ("%DLQ%.*", ("%DLQ%billing",)),
        (".*billing", ()),
        ("rmq_sys_.*", ("rmq_sys_wheel_timer",)),
        ("SCHEDULE_TOPIC_XXXX|paid", ("SCHEDULE_TOPIC_XXXX", "paid")),
        ("SCHEDULE.*", ()),
        ("broker-a", ("broker-a",)),
    ],
)
def test_the_whole_name_must_match(pattern: str, meant: tuple[str, ...]) -> None:
    assert matching(pattern, TOPICS, HIDDEN) == meant


def test_a_pattern_that_is_none_is_named() -> None:
    assert parse_pattern(" a.* ", "topicPattern") == "a.*"
    with pytest.raises(ConfigError, match="topicPattern: '\\(' is no regular expression: missing"):
        parse_pattern("(", "topicPattern")
    with pytest.raises(ConfigError, match="'topicPattern' is empty"):
        parse_pattern(" ", "topicPattern")
