"""A task sends the rows of its queues, and done again what is not there."""

from typing import Any

from roquet.spark.jobs.replay.archive_scan import RowFilter, scan_files
from roquet.spark.jobs.replay.replay_tasks import ReplayTasks, TaskPlan


def sending(lake: Any) -> ReplayTasks:
    files = sorted(map(str, lake.root.glob("day=*/*.parquet")))
    found = scan_files(files, "orders", RowFilter(), {})
    return ReplayTasks(
        settings=lake.cluster().settings,
        plans=[TaskPlan(sources=tuple(found))],
        queue_map={one.source: ("again", *one.source[1:]) for one in found},
        since=lake.cluster().latest(),
        already_sent={},
    )


def test_a_task_that_is_done_again_sends_nothing(lake_of: Any) -> None:
    lake_of.topic.send(6)
    lake_of.archive()
    task_set = sending(lake_of)
    assert (len(task_set), task_set.plans[0].rows) == (1, 24)
    counts = {"again": None, "orders": {"broker-a": {"0": 6, "1": 6}, "broker-b": {"0": 6, "1": 6}}}
    for _ in range(2):
        answer = task_set.run(0)
        assert answer.rows == {"orders": counts["orders"]}
        assert answer.doubled == 0
    assert lake_of.places() == lake_of.places("orders")
