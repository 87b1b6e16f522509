"""What a batch read brings for each way to say where it begins, where it ends and what it takes.

Modelled on what Spark tests of its own Kafka source. Also: topics in which messages wait or ended.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import create_topic

from roquet.client import Message
from roquet.client.blocking import Producer, PullConsumer
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.typed import read_json
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call
from roquet.wire.calls.admin.settings import DeleteExpired
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.send import SendBack

pytestmark = [pytest.mark.spark_suite, pytest.mark.timeout(300)]

TOPIC = "orders"
COUNT = 40


class OrdersCluster:
    """Two brokers; each has two queues of `orders`, and of `orders-old` and `paid`."""

    middle_ms = 0
    """When half of the messages of `orders` were there."""

    def __init__(self, running: BlockingCluster, *topics: str, queues: int = 2) -> None:
        self.running = running
        self.namesrv = running.namesrv_addr
        for topic in topics:
            create_topic(running, topic, queues)

    def call(self, broker: int, call: Call[Any]) -> Any:
        with closing(BlockingChannel(self.running.broker_addrs[broker])) as channel:
            return channel.call(call)


@pytest.fixture(scope="module")
def brokers() -> Iterator[OrdersCluster]:
    """Forty messages of `orders`, twenty of them late; ten of each other topic."""
    with BlockingCluster(brokers=2, read_internal_topics=True) as running:
        running_brokers = OrdersCluster(running, TOPIC, "orders-old", "paid")
        with Producer(running_brokers.namesrv, group="shop") as producer:
            for at in range(COUNT // 2):
                producer.send(message(at))
            for at in range(10):
                producer.send(Message("orders-old", b"old %d" % at))
                producer.send(Message("paid", b"paid %d" % at))
            time.sleep(0.05)
            running_brokers.middle_ms = SYSTEM_CLOCK.now_ms()
            time.sleep(0.05)
            for at in range(COUNT // 2, COUNT):
                producer.send(message(at))
        yield running_brokers


def message(at: int) -> Message:
    # Two of these tags have the same hash.
    tag = ("AaAa", "BBBB", "c", "d")[at % 4]
    return Message(TOPIC, b'{"at": %d}' % at, tag=tag, properties={"at": str(at)})


def read(spark: SparkSession, brokers: OrdersCluster, **options: str) -> DataFrame:
    settings = {"namesrv": brokers.namesrv, "topic": TOPIC, "timeout": "20s", **options}
    if "topicPattern" in settings:
        del settings["topic"]
    return spark.read.format("roquet").options(**settings).load()


def numbers(frame: DataFrame) -> list[int]:
    rows = frame.selectExpr("cast(properties['at'] as int) as at").collect()
    return sorted(row.at for row in rows)


ALL = list(range(COUNT))


def test_everything_and_nothing(spark: SparkSession, brokers: OrdersCluster) -> None:
    assert numbers(read(spark, brokers)) == ALL
    assert numbers(read(spark, brokers, startingOffsets="latest")) == []
    assert numbers(read(spark, brokers, endingOffsets="earliest")) == []


def test_times_bound_a_read_at_both_ends(spark: SparkSession, brokers: OrdersCluster) -> None:
    middle_ms = brokers.middle_ms
    middle = datetime.fromtimestamp(middle_ms / 1000, UTC).isoformat()
    assert numbers(read(spark, brokers, startingTime=str(middle_ms))) == ALL[COUNT // 2 :]
    assert numbers(read(spark, brokers, endingTime=middle)) == ALL[: COUNT // 2]
    assert numbers(read(spark, brokers, startingTime="-1 hour", endingTime="-1 ms")) == ALL
    assert numbers(read(spark, brokers, startingOffsets="2100-01-01T00:00Z")) == []


def test_offsets_of_each_queue(spark: SparkSession, brokers: OrdersCluster) -> None:
    offsets = '{"broker-a": {"0": 3, "1": -1}, "broker-b": {"0": -2}}'
    frame = read(spark, brokers, startingOffsets=offsets)
    first = {
        (row.broker, row.queue_id): row.first
        for row in frame.groupBy("broker", "queue_id").agg({"queue_offset": "min"})
        .toDF("broker", "queue_id", "first").collect()
    }  # fmt: skip
    assert first == {("broker-a", 0): 3, ("broker-b", 0): 0, ("broker-b", 1): 0}


def test_topics_by_list_and_pattern_each_with_its_own_beginning(
    spark: SparkSession, brokers: OrdersCluster
) -> None:
    def counts(**options: str) -> dict[str, int]:
        rows = read(spark, brokers, columns="topic", **options).groupBy("topic").count().collect()
        return {row["topic"]: row["count"] for row in rows}

    assert counts(topic="orders, paid") == {"orders": COUNT, "paid": 10}
    assert counts(topicPattern="orders.*") == {"orders": COUNT, "orders-old": 10}
    assert counts(topicPattern=".*", startingOffsets='{"orders": "latest"}') == {
        "orders-old": 10, "paid": 10,
    }  # fmt: skip
    assert counts(topicPattern=".*", startingOffsets='{"paid": "earliest", "*": "latest"}') == {
        "paid": 10
    }


def test_a_groups_progress(spark: SparkSession, brokers: OrdersCluster) -> None:
    for broker in (0, 1):
        brokers.call(broker, CreateGroup(body=b'{"groupName":"billing"}'))
    brokers.call(0, UpdateOffset(
        consumer_group="billing", topic=TOPIC, queue_id=1, commit_offset=4
    ))  # fmt: skip
    frame = read(spark, brokers, startingOffsets="group:billing")
    left_out = set(ALL) - set(numbers(frame))
    rows = read(spark, brokers).where("broker = 'broker-a' and queue_id = 1 and queue_offset < 4")
    assert left_out == set(numbers(rows))
    assert len(left_out) == 4


def test_filters_of_brokers_and_of_the_query(spark: SparkSession, brokers: OrdersCluster) -> None:
    assert numbers(read(spark, brokers, tags="AaAa")) == ALL[::4]
    assert numbers(read(spark, brokers, tags="BBBB || c")) == sorted(ALL[1::4] + ALL[2::4])
    assert numbers(read(spark, brokers, sql92="at BETWEEN 5 AND 7")) == [5, 6, 7]
    frame = read(spark, brokers, pushdown="true")
    middle_ms = brokers.middle_ms
    late = f"stored_at >= timestamp_millis({middle_ms}) and tag = 'AaAa'"
    assert numbers(frame.where(late)) == ALL[COUNT // 2 :: 4]
    assert numbers(frame.where("queue_id = 0 or tag = 'd'").where("tag in ('d')")) == ALL[3::4]


def test_json_bodies(spark: SparkSession, brokers: OrdersCluster) -> None:
    options = {"namesrv": brokers.namesrv, "topic": TOPIC, "columns": "tag,body"}
    frame = read_json(spark, options, "at int", mode="failfast")
    assert frame.columns == ["tag", "at"]
    assert sorted(row.at for row in frame.collect()) == ALL


def test_delayed_and_failed_messages_are_readable_with_their_type(
    spark: SparkSession, brokers: OrdersCluster
) -> None:
    with Producer(brokers.namesrv, group="shop") as producer:
        producer.send(Message("paid", b"level", delay_level=18))
        producer.send(Message("paid", b"timer", delay=timedelta(hours=1)))
    make_dead_letter(brokers, "%DLQ%failing")
    columns = "message_type,real_topic,body"
    for topic, kind, body in (
        ("SCHEDULE_TOPIC_XXXX", "delay", b"level"),
        ("rmq_sys_wheel_timer", "timer", b"timer"),
        ("%DLQ%failing", "dead", b"paid"),
    ):
        rows = read(spark, brokers, topic=topic, columns=columns).collect()
        assert [(row.message_type, row.real_topic) for row in rows] == [(kind, "paid")], topic
        assert bytes(rows[0].body).startswith(body)


def make_dead_letter(brokers: OrdersCluster, dead_letters: str) -> None:
    group = dead_letters.removeprefix("%DLQ%")
    with PullConsumer(brokers.namesrv, group=group) as consumer:
        pulled = [consumer.pull(queue, 0) for queue in consumer.queues("paid")]
    pulled_message = next(message for result in pulled for message in result.messages)
    broker = 0 if pulled_message.broker_name == "broker-a" else 1
    brokers.call(broker, SendBack(
        offset=pulled_message.position, group=group, delay_level=-1,
        origin_msg_id=pulled_message.message_id, origin_topic="paid", max_reconsume_times=0,
    ))  # fmt: skip
    time.sleep(0.2)


def test_a_group_with_members_is_left_alone(spark: SparkSession, brokers: OrdersCluster) -> None:
    with PullConsumer(brokers.namesrv, group="busy") as consumer:
        consumer.assign(consumer.queues(TOPIC)[:1])
        time.sleep(0.3)
        with pytest.raises(PySparkException, match="group 'busy' is used by consumers"):
            read(spark, brokers, group="busy").collect()
        assert numbers(read(spark, brokers, group="busy", shareGroup="true")) == ALL
    assert numbers(read(spark, brokers, group="idle")) == ALL


def test_deleted_messages_are_an_error_or_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"log_file_size": 64 * 1024, "retention": 1}
    with BlockingCluster(store=tmp_path, **settings) as running:
        one = OrdersCluster(running, "gone", queues=1)
        with Producer(running.namesrv_addr, group="shop") as producer:
            for at in range(10):  # three fit into a file, and are not compressed
                producer.send(Message("gone", os.urandom(20_000), properties={"at": str(at)}))
        time.sleep(0.1)
        one.call(0, DeleteExpired())
        kept = numbers(read(spark, one, topic="gone"))
        assert kept == list(range(kept[0], 10)), "nobody asked for more"
        assert kept[0] > 2
        missing_topic = {"topic": "gone", "startingOffsets": '{"broker-a": {"0": 2}}'}
        span = f"2 to {kept[0] - 1}" if kept[0] > 3 else "2"
        text = f"queue 0 of broker 'broker-a' lacks {kept[0] - 2} of its messages: offsets {span};"
        with pytest.raises(PySparkException, match=text):
            read(spark, one, **missing_topic).collect()
        assert numbers(read(spark, one, **missing_topic, failOnDataLoss="false")) == kept
        with pytest.raises(PySparkException, match=text):
            read(spark, one, **missing_topic, tags="none").collect()


def test_a_broker_that_is_away_while_a_read_goes_on_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BlockingCluster(store=tmp_path) as running:
        one = OrdersCluster(running, TOPIC, queues=1)
        with Producer(running.namesrv_addr, group="shop") as producer:
            producer.send(message(0))
        frame = read(spark, one)
        frame.rdd.getNumPartitions()  # it is planned
        running.stop_broker(0)
        timer = threading.Timer(2, running.start_broker, [0])
        timer.start()
        try:
            assert numbers(frame) == [0]
        finally:
            timer.join()
