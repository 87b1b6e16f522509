"""Tasks carry all that a worker needs."""

import pickle
from typing import Any

import msgspec
import pytest
from pyspark.sql.datasource import InputPartition

from roquet.model.errors import CallRefused
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import Piece
from roquet.spark.tasks import BrokerAway, Task, read, tasks_for
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode

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


def test_there_are_more_tasks_where_one_would_get_more_rows_than_it_may() -> None:
    few = msgspec.structs.replace(SETTINGS, max_partitions=2, max_records_per_partition=1000)
    tasks = tasks_for(few, [Piece("orders", "a", 0, 0, 9_500)], {})
    assert len(tasks) == 10
    assert max(sum(map(len, task.value)) for task in tasks) <= 1000


def test_a_task_whose_broker_is_away_waits_and_then_says_what_to_do(canned: Any) -> None:
    canned.send("broker-a", 1, b"one")
    (task,) = tasks_for(SETTINGS, [Piece("orders", "broker-a", 1, 0, 1)], canned.addresses)
    canned.addresses["broker-a"] = "elsewhere:1"
    impatient = msgspec.structs.replace(SETTINGS, timeout_ms=0)
    with pytest.raises(BrokerAway, match="reads 'orders' on 'broker-a' waited 0 s in vain: "):
        list(read(impatient, ("body",), task))


def test_a_refusal_is_told_as_it_is(canned: Any) -> None:
    (task,) = tasks_for(SETTINGS, [Piece("orders", "broker-a", 1, 0, 1)], canned.addresses)
    canned.moods.append(CallRefused(ResponseCode.NO_PERMISSION, "not for you"))
    with pytest.raises(CallRefused, match="not for you"):
        list(read(SETTINGS, ("body",), task))
