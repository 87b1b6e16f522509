"""The order that all members agree on, and fixed lists of queues."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate.assignment import FixedAssignment, in_java_order, sorted_queues, utf16

BEYOND, WITHIN = "\U0001f600", "\uffee"  # the first is less in UTF-16, not in code points

any_queues = st.lists(
    st.builds(
        MessageQueue,
        st.sampled_from(["t", "T", BEYOND, WITHIN]),
        st.sampled_from(["a", "b-1", "b", BEYOND, WITHIN]),
        st.integers(0, 2**31 - 1) | st.integers(0, 12),
    ),
    max_size=40,
)


def java_order(queue: MessageQueue) -> Any:
    return utf16(queue.topic), utf16(queue.broker_name), queue.queue_id


@given(any_queues)
def test_queues_are_in_the_order_of_topic_broker_and_id(queues: list[MessageQueue]) -> None:
    assert sorted_queues(queues) == sorted(queues, key=java_order)


def test_names_are_sorted_as_java_does() -> None:
    queues = [MessageQueue("t", name, 0) for name in (WITHIN, BEYOND)]
    ordered, members = in_java_order(queues, [WITHIN, BEYOND])
    assert [queue.broker_name for queue in ordered] == [BEYOND, WITHIN]
    assert members == [BEYOND, WITHIN]


def test_half_a_pair_of_surrogates_has_a_place_too() -> None:
    assert in_java_order([MessageQueue("t", "b", 0)], ["\ud800", "a"])[1] == ["a", "\ud800"]


def test_missing_queues_and_members_are_reported() -> None:
    with pytest.raises(UsageError, match="no queues"):
        in_java_order([], ["a"])
    with pytest.raises(UsageError, match="no members"):
        in_java_order([MessageQueue("t", "b", 0)], [])


def test_a_fixed_list_is_for_whoever_asks() -> None:
    queues = [MessageQueue("t", "b", 0)]
    shares = FixedAssignment(queues, ["a", "b", "a"])
    assert dict(shares) == {"a": queues, "b": queues}
    assert len(shares) == 2
    assert shares.get("somebody") == queues
