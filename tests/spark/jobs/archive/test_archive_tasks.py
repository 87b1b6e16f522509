"""Tasks of an archive write their ranges to files, and count the rows of each queue."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.jobs.conftest import Topic

from roquet.lake.columns.partitioning import schema_of
from roquet.lake.maintain.compaction import CompactionTasks
from roquet.lake.queue_offsets import ranges
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive.archive_tasks import ArchiveTasks, count_rows, prefetched
from roquet.spark.options import SourceOptions
from roquet.spark.source.tasks import plan_tasks

COLUMNS = ("broker", "queue_id", "queue_offset", "body", "stored_at")


def archive_tasks(topic: Topic, directory: Path) -> ArchiveTasks:
    settings = SourceOptions(
        namesrv=(topic.namesrv,), topics=("orders",), min_partitions=2, max_partitions=2
    )
    cluster = ClusterClient(settings)
    tasks = plan_tasks(settings, ranges(cluster.earliest(), cluster.latest()), cluster.addresses)
    return ArchiveTasks(settings=settings, tasks=tasks, columns=COLUMNS, directory=directory)


def test_all_messages_are_in_the_files_of_the_tasks(topic: Topic, tmp_path: Path) -> None:
    topic.send(50)
    task_set = archive_tasks(topic, tmp_path)
    assert len(task_set) == 2
    assert sum(map(len, task_set.ranges)) == 200
    results = [task_set.run(number) for number in range(len(task_set))]
    files = [file for result in results for file in result.files]
    rows = [pq.read_table(tmp_path / file.name) for file in files]
    assert sorted(pa.concat_tables(rows)["body"].to_pylist()) == topic.bodies
    assert [file.rows for file in files] == [one.num_rows for one in rows]
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        for broker, queues in result.rows["orders"].items():
            counts.update({(broker, queue_id): rows for queue_id, rows in queues.items()})
    assert set(counts.values()) == {50}
    assert len(counts) == 4


def test_a_repeated_task_writes_files_of_other_names(topic: Topic, tmp_path: Path) -> None:
    topic.send(5)
    task_set = archive_tasks(topic, tmp_path)
    first, second = task_set.run(0), task_set.run(0)
    assert first.rows == second.rows
    assert {file.name for file in first.files}.isdisjoint(file.name for file in second.files)


def test_the_rows_of_each_queue_are_counted() -> None:
    batches = [
        pa.RecordBatch.from_pydict({"broker": ["a"] * 3, "queue_id": pa.array([0, 5, 0], "int32")}),
        pa.RecordBatch.from_pydict({"broker": ["b"], "queue_id": pa.array([5], "int32")}),
        pa.RecordBatch.from_pydict(
            {"broker": pa.array([], "string"), "queue_id": pa.array([], "int32")}
        ),
    ]
    rows: Counter[tuple[str, str, int]] = Counter()
    assert list(count_rows(batches, "orders", rows)) == batches
    assert rows == {("orders", "a", 0): 2, ("orders", "a", 5): 1, ("orders", "b", 5): 1}


def test_compaction_writes_the_rows_of_several_files_to_one(topic: Topic, tmp_path: Path) -> None:
    topic.send(5)
    task_set = archive_tasks(topic, tmp_path)
    files = [file for number in range(2) for file in task_set.run(number).files]
    paths = [str(tmp_path / file.name) for file in files]
    compaction = CompactionTasks(groups=[paths], schema=schema_of(COLUMNS), directory=tmp_path)
    [merged] = compaction.run(0).files
    assert merged.rows == 20
    rows = pq.read_table(tmp_path / merged.name)
    places = zip(*(rows[name].to_pylist() for name in COLUMNS[:3]), strict=True)
    assert list(places) == [(broker, q, at) for broker, q in topic.queues for at in range(5)]


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "roquet-prefetch"]


def test_the_items_are_the_same_in_the_same_order() -> None:
    with prefetched(range(100)) as items:
        assert list(items) == list(range(100))
    assert threads() == []


def test_items_are_computed_before_they_are_requested() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    with prefetched(items()) as prefetched_items:
        assert made.wait(5)
        assert list(prefetched_items) == [1, 2]


def test_no_more_items_are_computed_than_the_depth() -> None:
    count = 0

    def items() -> Iterator[int]:
        nonlocal count
        for number in range(1000):
            count += 1
            yield number

    with prefetched(items(), depth=3) as prefetched_items:
        assert next(prefetched_items) == 0
    assert count <= 6
    assert threads() == []


def test_an_error_is_raised_in_place_of_the_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("gone")

    with prefetched(items()) as prefetched_items:
        assert next(prefetched_items) == 1
        with pytest.raises(ValueError, match="gone"):
            next(prefetched_items)


def test_an_early_end_leaves_no_thread() -> None:
    with pytest.raises(KeyError), prefetched(iter(int, 1)):
        raise KeyError
    assert threads() == []
