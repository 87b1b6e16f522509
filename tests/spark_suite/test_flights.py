"""The flights' way there and back: a topic, its archive, and a topic again, row for row.

ROQUET_TEST_FLIGHTS=336776 sends all of them, which takes some minutes.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import create_topic, read_topic

from roquet.cli.demo import flights
from roquet.client import Producer, ProducerConfig
from roquet.model import properties as names
from roquet.model.message import Message
from roquet.net import loop
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.replay import replay_job, replay_plan
from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.spark_suite

FLIGHTS: Final = int(os.environ.get("ROQUET_TEST_FLIGHTS", "20000"))
"""There are 336,776."""

QUEUES: Final = 4
"""On each of the brokers."""

PATIENT: Final = ProducerConfig(send_timeout_ms=60_000)
"""Spark shares the machine."""

OURS: Final = frozenset({names.SINK_ROW, names.REPLAYED_FROM})
COLUMNS: Final = (*("broker", "queue_id", "queue_offset", "body", "keys", "tag"), "properties")

Place = tuple[str, int]


class Flight(NamedTuple):
    body: bytes
    keys: str
    tag: str
    order_key: str
    properties: tuple[tuple[str, str], ...]

    @classmethod
    def sent(cls, message: Message) -> "Flight":
        pairs = tuple(sorted(message.properties.items()))
        keys = " ".join(message.keys)
        return cls(message.body, keys, message.tag or "", message.order_key or "", pairs)

    @classmethod
    def kept(cls, row: dict[str, Any]) -> "Flight":
        row_properties = dict(row["properties"])
        order_key = row_properties.get(names.SHARDING_KEY, "")
        pairs = tuple(
            sorted((k, v) for k, v in row_properties.items() if k not in names.RESERVED | OURS)
        )
        return cls(row["body"], row["keys"] or "", row["tag"] or "", order_key, pairs)


class FlightsCluster:
    """Two brokers with the flights in one topic, and another topic to send them to."""

    def __init__(self, running: BlockingCluster) -> None:
        self.running = running
        self.options = {"namesrv": running.namesrv_addr}
        for topic in (flights.TOPIC, "flights_again"):
            create_topic(running, topic, QUEUES)
        loop.run(self._send())

    def queues(self, topic: str) -> dict[Place, list[Flight]]:
        """The messages of each queue, in their order, as the brokers give them."""
        flights_by_place: dict[Place, list[Flight]] = defaultdict(list)
        for row in read_topic(self.options["namesrv"], topic, COLUMNS).to_pylist():
            place = flights_by_place[row["broker"], row["queue_id"]]
            assert row["queue_offset"] == len(place)
            place.append(Flight.kept(row))
        return dict(flights_by_place)

    async def _send(self) -> None:
        async with Producer(self.options["namesrv"], config=PATIENT) as producer:
            await producer.send_many(flights.read(flights.archive_path(), FLIGHTS))


@pytest.fixture(scope="module")
def airport(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightsCluster]:
    store = tmp_path_factory.mktemp("brokers")
    with BlockingCluster(brokers=2, store=store) as running:
        yield FlightsCluster(running)


@pytest.fixture(scope="module")
def lake(
    airport: FlightsCluster, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    lake = tmp_path_factory.mktemp("lake") / "flights"
    wanted = archive_job.Params(
        topic=flights.TOPIC,
        target=str(lake),
        options=airport.options,
        columns=("topic", *COLUMNS, "message_id", "born_at", "stored_at", "flag"),
    )
    assert archive_job.run(wanted, lambda: spark).rows == FLIGHTS
    return lake


def rows_of(lake: Path) -> list[dict[str, Any]]:
    files = [str(path) for path in sorted(lake.glob("day=*/*.parquet"))]
    table = ds.dataset(files, format="parquet").to_table(columns=list(COLUMNS))
    return [dict(row) for row in table.to_pylist()]


def test_the_archive_of_the_flights_is_the_flights_row_for_row(lake: Path) -> None:
    kept = sorted(map(Flight.kept, rows_of(lake)))
    sent = sorted(map(Flight.sent, flights.read(flights.archive_path(), FLIGHTS)))
    assert len(kept) == len(sent) == FLIGHTS
    assert kept == sent


def test_the_archive_has_each_row_where_the_topic_has_it(
    airport: FlightsCluster, lake: Path
) -> None:
    topic = airport.queues(flights.TOPIC)
    rows = rows_of(lake)
    for row in rows:
        assert topic[row["broker"], row["queue_id"]][row["queue_offset"]] == Flight.kept(row)
    places = {(row["broker"], row["queue_id"], row["queue_offset"]) for row in rows}
    assert len(places) == FLIGHTS


def test_a_replay_of_the_archive_is_the_same_topic(
    airport: FlightsCluster, spark: SparkSession, lake: Path
) -> None:
    params = replay_plan.Params(source=str(lake), topic="flights_again", options=airport.options)
    assert replay_job.run(params, lambda: spark) == replay_job.ReplayProgress(rows=FLIGHTS)
    again = airport.queues("flights_again")
    assert sum(map(len, again.values())) == FLIGHTS
    assert again == airport.queues(flights.TOPIC)
    assert replay_job.run(params, lambda: spark) == replay_job.ReplayProgress(there=FLIGHTS)
