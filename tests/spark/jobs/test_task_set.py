"""A task writes its ranges to files and counts what is in them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.task_set import (
    ArchiveTasks,
    CompactionTasks,
    TaskResult,
    count_rows,
    run_in_arrow,
)
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import ranges
from roquet.spark.source.tasks import plan_tasks

COLUMNS = ("broker", "queue_id", "queue_offset", "body", "stored_at")


def reading(topic: Any, directory: Path) -> ArchiveTasks:
    settings = SourceOptions(
        namesrv=(topic.namesrv,), topics=("orders",), min_partitions=2, max_partitions=2
    )
    cluster = ClusterClient(settings)
    tasks = plan_tasks(settings, ranges(cluster.earliest(), cluster.latest()), cluster.addresses)
    return ArchiveTasks(settings=settings, tasks=tasks, columns=COLUMNS, directory=str(directory))


def test_all_messages_are_in_the_files_of_the_tasks(topic: Any, tmp_path: Path) -> None:
    topic.send(50)
    errand = reading(topic, tmp_path)
    assert len(errand) == 2
    assert sum(map(len, errand.pieces)) == 200
    found = [errand.do(number) for number in range(len(errand))]
    files = [file for answer in found for file in answer.files]
    rows = [pq.read_table(tmp_path / file.name) for file in files]
    assert sorted(pa.concat_tables(rows)["body"].to_pylist()) == topic.bodies
    assert [file.rows for file in files] == [one.num_rows for one in rows]
    counts: Counter[tuple[str, str]] = Counter()
    for answer in found:
        for broker, queues in answer.rows["orders"].items():
            counts.update({(broker, queue_id): rows for queue_id, rows in queues.items()})
    assert set(counts.values()) == {50}
    assert len(counts) == 4


def test_a_task_that_is_done_twice_takes_other_names(topic: Any, tmp_path: Path) -> None:
    topic.send(5)
    errand = reading(topic, tmp_path)
    first, second = errand.do(0), errand.do(0)
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


def test_merging_gives_the_rows_of_several_files_in_one(topic: Any, tmp_path: Path) -> None:
    topic.send(5)
    errand = reading(topic, tmp_path)
    files = [file for number in range(2) for file in errand.do(number).files]
    paths = [str(tmp_path / file.name) for file in files]
    merging = CompactionTasks(groups=[paths], columns=COLUMNS, directory=str(tmp_path))
    [merged] = merging.do(0).files
    assert merged.rows == 20
    found = pq.read_table(tmp_path / merged.name)
    places = zip(*(found[name].to_pylist() for name in COLUMNS[:3]), strict=True)
    assert list(places) == [(broker, q, at) for broker, q in topic.queues for at in range(5)]


def test_numbers_come_in_and_answers_go_out() -> None:
    class Errand:
        def do(self, number: int) -> TaskResult:
            return TaskResult(error=f"task {number}")

    errand: Any = Errand()
    numbers = iter([pa.RecordBatch.from_pydict({"id": [3, 4]})])
    texts = [batch["answer"][0].as_py() for batch in run_in_arrow(errand, numbers)]
    assert [("task 3" in text, "task 4" in text) for text in texts] == [
        (True, False),
        (False, True),
    ]
