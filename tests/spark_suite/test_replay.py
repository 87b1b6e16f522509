"""Replays and repairs through Spark: all kinds of tables, frames, conditions; minutes long."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import create_topic, read_topic, send_columns

from roquet.model.errors import UsageError
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.repair import repair_job
from roquet.spark.jobs.replay import replay_job, replay_plan
from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.spark_suite

ROWS = 2_000
MAP = pa.map_(pa.string(), pa.string())


class FourQueueBroker:
    def __init__(self, running: BlockingCluster) -> None:
        self.running, self.namesrv = running, running.namesrv_addr
        self.options = {"namesrv": self.namesrv}

    def make(self, topic: str) -> None:
        create_topic(self.running, topic, 4)

    def send(self, topic: str, count: int = ROWS, **properties: str) -> None:
        for queue_id in range(4):
            bodies = [b"%d/%d" % (queue_id, at) for at in range(count)]
            property_maps = pa.array([list(properties.items())] * count, MAP)
            address = self.running.broker_addrs[0]
            send_columns(address, topic, queue_id, body=bodies, properties=property_maps)

    def places(self, topic: str) -> list[tuple[Any, ...]]:
        rows = read_topic(self.namesrv, topic, ("queue_id", "queue_offset", "body"))
        return sorted(tuple(row.values()) for row in rows.to_pylist())


@pytest.fixture
def town(tmp_path: Path) -> Iterator[FourQueueBroker]:
    with BlockingCluster(store=tmp_path / "brokers") as running:
        town_of_brokers = FourQueueBroker(running)
        town_of_brokers.make("orders")
        town_of_brokers.make("again")
        yield town_of_brokers


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_replay_of_an_archive_is_the_same_topic(
    spark: SparkSession, town: FourQueueBroker, tmp_path: Path, kind: str
) -> None:
    town.send("orders")
    lake = str(tmp_path / "lake")
    wanted = archive_job.Params(topic="orders", target=lake, kind=kind, options=town.options)
    archive_job.run(wanted, lambda: spark)
    params = replay_plan.Params(source=lake, topic="again", options=town.options, tasks=2)
    assert replay_job.run(params, lambda: spark).rows == 4 * ROWS
    assert town.places("again") == town.places("orders")
    assert replay_job.run(params, lambda: spark) == replay_job.ReplayProgress(there=4 * ROWS)


def test_any_frame_with_the_columns_is_replayed(
    spark: SparkSession, town: FourQueueBroker, tmp_path: Path
) -> None:
    town.send("orders")
    frame = spark.read.format("roquet").options(topic="orders", **town.options).load()
    odd = frame.where("queue_offset % 2 = 1")
    params = replay_plan.Params(source=str(tmp_path / "odd"), topic="again", options=town.options)
    assert replay_job.replay_frame(odd, params, spark).rows == 2 * ROWS
    assert replay_job.replay_frame(odd, params, spark).rows == 0
    wanted = [body for *_, offset, body in town.places("orders") if offset % 2]
    assert sorted(body for *_, body in town.places("again")) == sorted(wanted)


def test_doubles_of_a_replay_are_dropped_by_the_source(
    spark: SparkSession, town: FourQueueBroker, tmp_path: Path
) -> None:
    for _ in range(2):  # as two requests with one row
        town.send("again", 1, ROQUET_ROW="orders/broker-a/0/5")
    reader = spark.read.format("roquet").options(topic="again", dropDoubles="true", **town.options)
    assert reader.option("maxPartitions", "1").load().count() == 1


def test_letters_are_chosen_by_a_condition(
    spark: SparkSession, town: FourQueueBroker, tmp_path: Path
) -> None:
    town.make("%DLQ%billing")
    for tag in ("new", "paid"):
        town.send("%DLQ%billing", 10, DLQ_ORIGIN_TOPIC="again", TAGS=tag)
    params = repair_job.Params(
        group="billing",
        directory=str(tmp_path / "letters"),
        options=town.options,
        resend=True,
        where="tag = 'paid' and queue_id < 2",
    )
    done = repair_job.run(params, lambda: spark)
    assert (done.letters, done.chosen, done.sent) == (80, 20, 20)
    done = repair_job.run(params, lambda: spark)
    assert (done.new, done.sent, done.before) == (0, 0, 20)
    assert len(town.places("again")) == 20


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("tagg = 'paid'", "`tagg` cannot be resolved"),
        ("tag = ", "Syntax error"),
        ("tag > 5", "CAST_INVALID_INPUT"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_is_an_error(
    spark: SparkSession, town: FourQueueBroker, tmp_path: Path, where: str, says: str
) -> None:
    town.make("%DLQ%billing")
    town.send("%DLQ%billing", 1, DLQ_ORIGIN_TOPIC="again", TAGS="new")
    params = repair_job.Params(
        group="billing",
        directory=str(tmp_path / "letters"),
        options=town.options,
        resend=True,
        where=where,
    )
    with pytest.raises(UsageError, match=f"--where .*{says}"):
        repair_job.run(params, lambda: spark)
    assert not town.places("again")
