"""Topic patterns: what they match, and when a topic counts as gone."""

import re

from hypothesis import given
from hypothesis import strategies as st

from roquet.model.namespaces import wrap
from roquet.rules.consumption.topic_patterns import (
    ABSENCE_MS,
    absences_after,
    is_user_topic,
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


@given(st.lists(st.tuples(st.integers(1, ABSENCE_MS), st.booleans()), max_size=8))
def test_a_topic_leaves_a_minute_after_the_first_list_without_it(
    lists: list[tuple[int, bool]],
) -> None:
    absences: dict[str, int | None] = {"t": None}
    now_ms, first_absence_ms = 0, None
    for pause_ms, is_listed in lists:
        now_ms += pause_ms
        absences = absences_after(absences, ["t"] if is_listed else [], now_ms)
        if is_listed:
            first_absence_ms = None
        elif first_absence_ms is None:
            first_absence_ms = now_ms
        if first_absence_ms is not None and now_ms - first_absence_ms >= ABSENCE_MS:
            assert absences == {}
            return
        assert absences == {"t": first_absence_ms}
