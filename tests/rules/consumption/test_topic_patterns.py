"""Topic patterns: what they match, and when a topic counts as gone."""

import re

from hypothesis import given
from hypothesis import strategies as st

from roquet.model.namespaces import wrap
from roquet.rules.consumption.topic_patterns import (
    ABSENCE_MS,
    is_user_topic,
    listed_after,
    match_topics,
)

names = st.text("abc_-", min_size=1, max_size=4)
EVERYTHING = re.compile(".*", re.DOTALL)


def test_a_pattern_matches_whole_names() -> None:
    topics = ["orders-eu", "orders-us", "old-orders-eu", "orders"]
    assert [*match_topics([re.compile("orders-.*")], topics)] == ["orders-eu", "orders-us"]


def test_retry_dead_letter_and_system_topics_match_never() -> None:
    systems = [
        "%RETRY%g", "%DLQ%g", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_wheel_timer", "c_REPLY_TOPIC", "broker-a",
    ]  # fmt: skip
    assert match_topics([EVERYTHING], [*systems, "t"], ["broker-a"]) == {"t": EVERYTHING}
    assert not any(is_user_topic(topic, {"broker-a"}) for topic in systems)


def test_the_first_pattern_that_matches_counts() -> None:
    first, second = re.compile("a.*"), re.compile(".*b")
    assert match_topics([first, second], ["ab", "b", "c"]) == {"ab": first, "b": second}


@given(st.sets(names), st.sets(names))
def test_namespaces_do_not_see_each_other(ours: set[str], others: set[str]) -> None:
    topics = {*(wrap("n", topic) for topic in ours), *others}
    assert match_topics([EVERYTHING], topics, namespace="n").keys() == {
        wrap("n", topic) for topic in ours
    }
    assert match_topics([EVERYTHING], topics).keys() == others


@given(st.lists(st.tuples(st.integers(1, ABSENCE_MS), st.sets(names)), max_size=6))
def test_a_topic_leaves_once_it_was_not_listed_for_a_minute(
    lists: list[tuple[int, set[str]]],
) -> None:
    seen = {topic: 0 for _, listed in lists for topic in listed}
    listed_ms, now_ms = dict(seen), 0
    for pause_ms, listed in lists:
        now_ms += pause_ms
        listed_ms = listed_after(listed_ms, listed, now_ms)
        seen |= dict.fromkeys(listed, now_ms)
        assert {topic for topic, at in seen.items() if now_ms - at < ABSENCE_MS} >= listed_ms.keys()
    assert all(now_ms - at < ABSENCE_MS for at in listed_ms.values())


def test_a_topic_that_is_listed_again_in_time_stays() -> None:
    listed_ms = listed_after({"t": 0}, [], ABSENCE_MS - 1)
    assert listed_after(listed_ms, ["t"], ABSENCE_MS) == {"t": ABSENCE_MS}
    assert listed_after(listed_ms, [], ABSENCE_MS) == {}
