"""How much a batch in Spark brings, and when there is one."""

import time

import pytest
from tests.spark_suite.conftest import StreamRun, TopicCluster

pytestmark = [pytest.mark.spark_suite, pytest.mark.timeout(300)]


def test_rows_of_a_batch_are_shared_out_by_lag(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 300)
    topics.send("orders", 100, broker=1)
    assert run.once(maxOffsetsPerTrigger="160") == [160, 160, 80]
    assert sum(row.startswith("1/") for row in run.batches[0]) == 40


def test_bytes_of_a_batch_are_limited(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 100, size=900)
    topics.send("orders", 100, broker=1, size=900)
    counts = run.once(maxBytesPerTrigger="100KiB")
    assert sum(counts) == 200
    assert all(80 <= count <= 110 for count in counts[:-1]), counts


def test_a_message_over_the_limit_of_bytes_comes_alone(
    topics: TopicCluster, run: StreamRun
) -> None:
    topics.send("orders", 3, size=20_000)
    assert run.once(maxBytesPerTrigger="1KiB") == [1, 1, 1]


def test_few_rows_wait_for_more_or_for_the_delay(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 2)
    run.start(now=False, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    run.until(lambda: len(run.rows) == 2)
    topics.send("orders", 4)
    time.sleep(1.5)
    assert len(run.rows) == 2, "they wait"
    topics.send("orders", 6, broker=1)
    run.until(lambda: len(run.rows) == 12)
    began = time.perf_counter()
    topics.send("orders", 1)
    run.until(lambda: len(run.rows) == 13)
    assert time.perf_counter() - began > 3


def test_a_run_that_is_to_end_holds_nothing_back(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 7)
    assert run.once(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5") == [5, 2]


def test_trigger_once_is_one_batch_of_all_messages(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 50)
    run.trigger = {"once": True}
    assert run.once(maxOffsetsPerTrigger="7") == [50]


def test_partitions_are_by_size(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 30)
    topics.send("orders", 10, broker=1)
    run.once(maxRecordsPerPartition="15")
    assert run.partitions[0] == 3
    topics.send("orders", 1)
    topics.send("orders", 1, broker=1)
    run.once()
    assert run.partitions[1] == 1, "many queues share a partition"
