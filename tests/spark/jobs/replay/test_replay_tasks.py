"""A task sends the rows of its queues; repeated, it sends those that are missing."""

from typing import TYPE_CHECKING

from roquet.spark.jobs.replay.archive_scan import RowFilter, scan_files
from roquet.spark.jobs.replay.replay_tasks import ReplayTasks, TaskPlan

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import ArchivedTopic


def sending(archived_topic: "ArchivedTopic") -> ReplayTasks:
    files = sorted(map(str, archived_topic.root.glob("day=*/*.parquet")))
    scan = scan_files(files, "orders", RowFilter(), {})
    return ReplayTasks(
        settings=archived_topic.cluster().settings,
        plans=[TaskPlan(sources=tuple(scan))],
        queue_map={one.source: ("again", *one.source[1:]) for one in scan},
        since=archived_topic.cluster().latest(),
        already_sent={},
    )


def test_a_task_that_is_done_again_sends_nothing(archived_topic: "ArchivedTopic") -> None:
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
