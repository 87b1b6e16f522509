"""Tasks carry all that a worker needs."""

import pickle
from typing import Any

from pyspark.sql.datasource import InputPartition

from roquet.spark.options import SourceOptions
from roquet.spark.plan import Piece
from roquet.spark.tasks import Task, read, tasks_for
from roquet.wire.calls.route import GetRoute

SETTINGS = SourceOptions(namesrv=("namesrv:9876",), topics=("orders",), max_partitions=4)
PIECES = [Piece("orders", "broker-a", 0, 0, 100_000)]


def test_a_task_survives_the_way_to_a_worker() -> None:
    (task,) = tasks_for(
        SETTINGS, [Piece("orders", "broker-a", 0, 0, 3)], {"broker-a": "broker-a:10911"}
    )
    copy = pickle.loads(pickle.dumps(task))
    assert isinstance(copy, Task)
    assert (copy.value, copy.addresses) == (task.value, task.addresses)


def test_there_are_as_many_tasks_as_are_allowed_and_worth_it() -> None:
    assert len(tasks_for(SETTINGS, PIECES, {})) == 4
    assert len(tasks_for(SETTINGS, [Piece("orders", "a", 0, 0, 9)], {})) == 1
    assert tasks_for(SETTINGS, [], {}) == []


def test_a_worker_reads_with_the_addresses_of_its_task(canned: Any) -> None:
    canned.send("broker-a", 1, b"one", b"two")
    (task,) = tasks_for(SETTINGS, [Piece("orders", "broker-a", 1, 0, 2)], canned.addresses)
    (batch,) = read(SETTINGS, ("body",), task)
    assert batch.to_pydict() == {"body": [b"one", b"two"]}
    assert not [call for call in canned.calls if isinstance(call, GetRoute)]


def test_the_partition_that_spark_makes_for_nothing_is_empty() -> None:
    assert list(read(SETTINGS, ("body",), InputPartition(None))) == []
