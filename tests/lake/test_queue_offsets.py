"""Offsets of queues survive the JSON that Spark keeps; foreign ones are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake import queue_offsets
from roquet.lake.queue_offsets import OffsetRange, QueueOffsets
from roquet.model.errors import ConfigError

A0, A1, B0 = ("orders", "a", 0), ("orders", "a", 1), ("orders", "b", 0)
queues = st.tuples(
    st.sampled_from(["orders", "payments"]), st.sampled_from(["a", "b", "c"]), st.integers(0, 12)
)
offsets = st.integers(0, 2**62)


@given(st.dictionaries(queues, offsets))
def test_offsets_come_back_from_sparks_checkpoint(given_offsets: QueueOffsets) -> None:
    assert queue_offsets.from_json(queue_offsets.to_json(given_offsets)) == given_offsets


def test_offsets_in_a_checkpoint_are_by_topic_and_broker_and_queue() -> None:
    assert queue_offsets.to_json({("paid", "b", 0): 4, B0: 3, A1: 2, A0: 1}) == {
        "orders": {"a": {"0": 1, "1": 2}, "b": {"0": 3}},
        "paid": {"b": {"0": 4}},
    }


def test_ranges_leave_out_queues_with_nothing_new() -> None:
    unread = queue_offsets.ranges({A0: 5, A1: 7, B0: 1}, {A0: 5, A1: 9, B0: 0})
    assert unread == [OffsetRange("orders", "a", 1, 7, 9)]


def test_offsets_of_a_checkpoint_must_be_of_a_topic_that_is_read() -> None:
    kept = {"orders": {"a": {"0": 1}}, "paid": {"a": {"0": 2}}}
    assert queue_offsets.offsets_of_checkpoint(
        kept, {"orders", "paid"}.__contains__
    ) == queue_offsets.from_json(kept)
    with pytest.raises(ConfigError, match=r"checkpoint is of topic 'paid', .* new checkpointLoc"):
        queue_offsets.offsets_of_checkpoint(kept, {"orders"}.__contains__)


@pytest.mark.parametrize(
    "kept",
    [
        {"broker-a": {"0": 23}},  # of one topic alone, as a version of long ago had it
        {"orders": {"a": {"0": "23"}}},
        {"orders": {"a": {"x": 23}}},
        {"orders": {"a": {"0": True}}},
        {"orders": 7},
        [1, 2],
        7,
        None,
    ],
)
def test_offsets_of_another_shape_are_no_checkpoint_of_ours(kept: object) -> None:
    with pytest.raises(ConfigError, match=r"another version .* choose a new checkpointLocation"):
        queue_offsets.offsets_of_checkpoint(kept, lambda _: True)


def test_foreign_offsets_are_shown_but_not_all_of_them() -> None:
    with pytest.raises(ConfigError) as caught:
        queue_offsets.offsets_of_checkpoint(["x" * 1000], lambda _: True)
    assert len(str(caught.value)) < 400


@given(st.dictionaries(queues, offsets), st.dictionaries(st.sampled_from("abc"), st.integers(0)))
def test_a_report_is_read_back(latest: QueueOffsets, away: dict[str, int]) -> None:
    assert queue_offsets.latest_from_json(queue_offsets.latest_to_json(latest, away)) == (
        latest,
        away,
    )


def test_a_checkpoint_keeps_its_topic_ids_and_an_older_one_has_none() -> None:
    offsets = {("orders", "a", 0): 5, ("paid", "b", 1): 7}
    ids = {("orders", "a"): "1-1", ("gone", "a"): "2-2"}
    kept = queue_offsets.checkpoint(offsets, ids)
    assert kept == {
        **queue_offsets.to_json(offsets),
        queue_offsets.TOPIC_IDS_KEY: {"orders": {"a": "1-1"}},
    }
    assert queue_offsets.is_offsets_json(kept)
    assert (
        queue_offsets.offsets_of_checkpoint(kept, lambda topic: topic in ("orders", "paid"))
        == offsets
    )
    assert queue_offsets.topic_ids_of_checkpoint(kept) == {("orders", "a"): "1-1"}
    assert queue_offsets.topic_ids_of_checkpoint(queue_offsets.to_json(offsets)) == {}
    assert queue_offsets.checkpoint(offsets, {}) == queue_offsets.to_json(offsets)


@pytest.mark.parametrize(
    ("next_offset", "end", "begin", "count"),
    [(3, 10, 0, 7), (3, 10, 5, 5), (10, 10, 0, 0), (12, 10, 0, 0), (3, 10, 12, 0)],
)
def test_messages_that_were_deleted_are_not_waited_for(
    next_offset: int, end: int, begin: int, count: int
) -> None:
    assert queue_offsets.unread(next_offset, end, begin) == count
