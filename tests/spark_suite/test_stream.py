"""Streams in Spark: starts, restarts, what is found later, what goes away, and what is lost.

Modelled on what Spark tests of its own Kafka source.
"""

import json
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark_suite.conftest import StreamRun, TopicCluster

from roquet.spark.listener import ProgressListener, QueryProgress, parse_progress, publish

pytestmark = [pytest.mark.spark_suite, pytest.mark.timeout(300)]


def names(broker: int, queue_id: int, *span: int) -> set[str]:
    return {f"{broker}/{queue_id}/{at}" for at in range(*span)}


# -- starts and restarts ---------------------------------------------------------------------


def test_a_query_begins_at_the_given_offsets(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 5)
    topics.send("orders", 3, broker=1, queue_id=1)
    run.once()
    assert set(run.rows) == names(0, 0, 5) | names(1, 1, 3)
    offsets = {"orders": {"broker-a": {"0": 3, "1": -1}, "broker-b": {"1": -2}}}
    other = run.other("offsets")
    other.once(startingOffsets=json.dumps(offsets))
    assert set(other.rows) == names(0, 0, 3, 5) | names(1, 1, 3)
    latest = run.other("latest")
    assert sum(latest.once(startingOffsets="latest")) == 0
    topics.send("orders", 2)
    latest.once(startingOffsets="latest")
    assert set(latest.rows) == names(0, 0, 5, 7), "from its checkpoint, not from the latest"


def test_a_batch_that_failed_is_the_same_when_it_comes_again(
    topics: TopicCluster, run: StreamRun
) -> None:
    topics.send("orders", 30)
    topics.send("orders", 30, broker=1)
    run.fails_at = 1
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run.once(maxOffsetsPerTrigger="20")
    topics.send("orders", 30, queue_id=1)
    run.fails_at = None
    run.once(maxOffsetsPerTrigger="20")
    assert len(run.batches[1]) == 20
    assert not any(row.startswith("0/1/") for row in run.batches[1]), "it was planned before those"
    assert sorted(run.rows) == sorted(names(0, 0, 30) | names(0, 1, 30) | names(1, 0, 30))


def test_a_checkpoint_of_another_topic_is_refused(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 1)
    run.once()
    topics.create("paid")
    run.topic = "paid"
    with pytest.raises(StreamingQueryException, match="checkpoint is of topic 'orders'"):
        run.once()


# -- found while it runs ---------------------------------------------------------------------


def test_new_queues_and_a_late_broker_are_read_from_their_first_message(
    topics: TopicCluster, run: StreamRun
) -> None:
    topics.send("orders", 2)
    run.start(now=False)
    run.until(lambda: len(run.rows) == 2)
    topics.create("orders", queues=4)
    topics.send("orders", 3, queue_id=3)
    run.until(lambda: set(run.rows) == names(0, 0, 2) | names(0, 3, 3))
    topics.running.add_broker()
    topics.create("orders", broker=2)
    topics.send("orders", 4, broker=2, queue_id=1)
    run.until(lambda: len(run.rows) == 9)
    assert set(run.rows) == names(0, 0, 2) | names(0, 3, 3) | names(2, 1, 4)


def test_a_new_topic_of_a_pattern_is_read_from_its_first_message(
    topics: TopicCluster, run: StreamRun
) -> None:
    run.topic = "orders.*"
    topics.send("orders", 2)
    run.start(now=False, pattern=True, startingOffsets="latest")
    run.until(
        lambda: "Waiting" in run.query.status["message"] or run.query.lastProgress is not None
    )
    topics.create("orders-eu")
    topics.send("orders-eu", 5)
    run.until(lambda: set(run.rows) == names(0, 0, 5))


# -- away, and lost --------------------------------------------------------------------------


def test_a_broker_that_restarts_stops_its_own_queues_only(
    spark: SparkSession, topics: TopicCluster, run: StreamRun
) -> None:
    reports: list[QueryProgress] = []
    listener = ProgressListener(reports.append)
    spark.streams.addListener(listener)
    topics.send("orders", 2)
    topics.send("orders", 2, broker=1)
    run.start(now=False, columns="body")
    run.until(lambda: len(run.rows) == 4)
    topics.running.stop_broker(1)
    topics.send("orders", 3)
    run.until(lambda: len(run.rows) == 7)
    topics.send("orders", 1)
    run.until(lambda: any(one.away for one in reports))
    assert [list(one.away) for one in reports if one.away][-1] == ["broker-b"]
    topics.running.start_broker(1)
    topics.send("orders", 2, broker=1)
    run.until(lambda: len(run.rows) == 10)
    assert sorted(run.rows) == sorted(names(0, 0, 6) | names(1, 0, 4))
    run.until(lambda: not reports[-1].away)
    spark.streams.removeListener(listener)


def test_a_run_that_is_to_end_does_not_leave_out_a_broker(
    topics: TopicCluster, run: StreamRun
) -> None:
    topics.send("orders", 2)
    topics.send("orders", 2, broker=1)
    run.once()
    topics.send("orders", 1)
    topics.send("orders", 1, broker=1)
    topics.running.stop_broker(1)
    with pytest.raises(StreamingQueryException, match="broker 'broker-b' is away"):
        run.once()
    run.once(failOnDataLoss="false")
    assert set(run.rows) == names(0, 0, 3) | names(1, 0, 2)
    topics.running.start_broker(1)
    run.until(lambda: topics.progress("nobody", 1) == {})
    time.sleep(0.2)
    run.once()
    assert sorted(run.rows) == sorted(names(0, 0, 3) | names(1, 0, 3)), "it was left, not lost"


def test_a_recreated_topic_is_a_loss(topics: TopicCluster, run: StreamRun) -> None:
    topics.send("orders", 9)
    run.once()
    topics.delete("orders")
    topics.create("orders")
    topics.send("orders", 2)
    with pytest.raises(StreamingQueryException, match="was deleted and made anew"):
        run.once()
    run.once(failOnDataLoss="false")
    assert sorted(run.rows) == sorted([*names(0, 0, 9), *names(0, 0, 2)])


# -- progress --------------------------------------------------------------------------------


def test_progress_is_a_groups_for_operators(
    spark: SparkSession, topics: TopicCluster, run: StreamRun
) -> None:
    listener = publish(spark, group="lake", namesrv=topics.namesrv, topic="orders")
    topics.send("orders", 7)
    run.once(publishProgress="lake-late", maxOffsetsPerTrigger="4")
    topics.send("orders", 2)
    run.until(lambda: topics.progress("lake").get(("orders", 0)) == (7, 2))
    assert topics.progress("lake-late")["orders", 0] == (4, 5), "Spark tells a source late"
    reports = [one for p in run.query.recentProgress for one in parse_progress(json.loads(p.json))]
    assert reports[-1].lag == {"orders": 0}
    spark.streams.removeListener(listener)
