"""A task sends the rows of its queues; repeated, it sends those that are missing."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.conftest import ArchivedTopic

from roquet.spark.jobs.replay.archive_scan import RowFilter, scan_files
from roquet.spark.jobs.replay.replay_tasks import (
    LEAD_MS_MAX,
    ReplayTasks,
    TaskPlan,
    merge_by_time,
    stored_ms,
)


def sending(archived_topic: ArchivedTopic) -> ReplayTasks:
    files = sorted(map(str, archived_topic.root.glob("day=*/*.parquet")))
    scan = scan_files(files, "orders", RowFilter(), {})
    return ReplayTasks(
        settings=archived_topic.cluster().settings,
        plans=[TaskPlan(sources=tuple(scan))],
        queue_map={one.source: ("again", *one.source[1:]) for one in scan},
        since=archived_topic.cluster().latest(),
        already_sent={},
    )


def test_a_task_that_is_done_again_sends_nothing(archived_topic: ArchivedTopic) -> None:
    archived_topic.topic.send(6)
    archived_topic.archive()
    task_set = sending(archived_topic)
    assert (len(task_set), task_set.plans[0].rows) == (1, 24)
    counts = {"again": None, "orders": {"broker-a": {"0": 6, "1": 6}, "broker-b": {"0": 6, "1": 6}}}
    for _ in range(2):
        answer = task_set.run(0)
        assert answer.rows == {"orders": counts["orders"]}
        assert answer.doubled == 0
    assert archived_topic.places() == archived_topic.places("orders")


def batch(first: int, times_ms: list[int | None]) -> pa.RecordBatch:
    stored = pa.array(
        [None if ms is None else ms * 1000 for ms in times_ms], pa.timestamp("us", "UTC")
    )
    return pa.RecordBatch.from_pydict(
        {"queue_offset": list(range(first, first + len(times_ms))), "stored_at": stored}
    )


times = st.lists(st.integers(0, 20_000), min_size=0, max_size=12)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(times, max_size=4)))
def test_each_queue_comes_whole_and_in_order(queues: dict[str, list[list[int]]]) -> None:
    feeds = {}
    for name, parts in queues.items():
        ends = [sum(map(len, parts[:at])) for at in range(len(parts))]
        feeds[name] = iter([batch(end, list(part)) for end, part in zip(ends, parts, strict=True)])
    seen: dict[str, list[int]] = {name: [] for name in queues}
    for name, rows in merge_by_time(feeds):
        assert len(rows)
        seen[name] += rows["queue_offset"].to_pylist()
    for name, parts in queues.items():
        assert seen[name] == list(range(sum(map(len, parts))))


def test_no_queue_runs_far_ahead_of_the_others() -> None:
    late = LEAD_MS_MAX * 3
    feeds = {
        "a": iter([batch(0, [0, 1, late])]),
        "b": iter([batch(0, [2, late + LEAD_MS_MAX + 1])]),
    }
    turns = [(name, rows["queue_offset"].to_pylist()) for name, rows in merge_by_time(feeds)]
    assert turns == [("a", [0, 1]), ("b", [0]), ("a", [2]), ("b", [1])]


def test_a_clock_that_was_set_back_changes_no_order() -> None:
    assert stored_ms(batch(0, [5, 3, None, 9])).tolist() == [5, 5, 5, 9]


def test_without_times_the_order_follows_offsets() -> None:
    assert stored_ms(pa.RecordBatch.from_pydict({"queue_offset": [4, 7]})).tolist() == [4, 7]
