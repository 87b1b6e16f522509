"""The Spark examples on the first flights: each says of them what their file says."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pandas as pd
import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import create_topic

from roquet.cli.demo.flights import archive_path, read
from roquet.client import Producer, ProducerConfig
from roquet.net import loop
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import SourceOptions
from roquet.spark.session import prepare_environment
from roquet.testing.cluster import BlockingCluster

pytestmark = pytest.mark.spark_suite

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "spark"
FLIGHTS = 2_000
TOPICS = ("flights", "late_flights", "alarms", "late_aircraft")


@pytest.fixture(scope="module")
def flights() -> list[dict[str, Any]]:
    """The first of them, as their file has them."""
    return [msgspec.json.decode(message.body) for message in read(archive_path(), FLIGHTS)]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A cluster that has them as messages."""

    async def send(address: str) -> None:
        config = ProducerConfig(send_timeout_ms=60_000)  # Spark shares the machine
        async with Producer(namesrv=address, config=config) as producer:
            await producer.send_many(read(archive_path(), FLIGHTS))

    with BlockingCluster() as running:
        for topic in TOPICS:
            create_topic(running, topic, 4)
        loop.run(send(running.namesrv_addr))
        yield running.namesrv_addr


def example(name: str) -> ModuleType:
    """An example as a module; it does nothing by itself."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_hour(flights: list[dict[str, Any]]) -> dict[tuple[datetime, str], tuple[int, float | None]]:
    """Count and mean delay, as nobody but Python sees them."""
    delays_by_hour: dict[tuple[datetime, str], list[int | None]] = defaultdict(list)
    for flight in flights:
        hour = datetime.fromisoformat(flight["time_hour"])
        delays_by_hour[hour, flight["origin"]].append(flight["dep_delay"])
    means = {}
    for place, delays in delays_by_hour.items():
        known = [delay for delay in delays if delay is not None]
        means[place] = len(delays), sum(known) / len(known) if known else None
    return means


def same(rows: list[Any], wanted: dict[tuple[datetime, str], tuple[int, float | None]]) -> None:
    utc = next(iter(wanted))[0].tzinfo
    rows_by_hour = {
        (row.hour.astimezone(utc), row.origin): (row.flights, row.delay) for row in rows
    }
    assert rows_by_hour.keys() == wanted.keys()
    for place, (count, delay) in wanted.items():
        assert rows_by_hour[place] == (count, None if delay is None else pytest.approx(delay))


def test_flights_by_hour_are_those_of_the_file(
    spark: SparkSession, namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    table = str(tmp_path / "hours")
    flights_by_hour = example("flights_by_hour")
    for _ in range(2):  # a second run goes on, and finds nothing new
        flights_by_hour.run(spark, table, namesrv=namesrv)
    same(spark.read.parquet(table).collect(), by_hour(flights))


def test_the_dashboard_shows_all_messages_by_their_tags(
    spark: SparkSession, namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    module = example("dashboard")
    dashboard = module.Dashboard("flights", tmp_path / "dashboard.html")
    query = module.start(spark, dashboard, once=True, namesrv=namesrv, maxOffsetsPerTrigger="1500")
    assert query.awaitTermination(60)
    counts = {tag: sum(one.values()) for tag, one in dashboard.counts.items()}
    assert counts == Counter(flight["carrier"] for flight in flights)
    text = dashboard.path.read_text("utf-8")
    assert f"{FLIGHTS:,} messages of {len(counts)} tags" in text
    assert "<svg" in text


def test_windows_of_routes_are_final_a_day_later(
    spark: SparkSession, namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    module = example("delays_by_route")
    table = str(tmp_path / "routes")
    for _ in range(2):  # a second run goes on, and finds nothing new
        module.run(spark, table, namesrv=namesrv)
    rows = spark.read.parquet(table).collect()
    newest = max(datetime.fromisoformat(flight["time_hour"]) for flight in flights)
    delays_by_window: dict[tuple[datetime, str, str], list[int | None]] = defaultdict(list)
    for flight in flights:
        hour = datetime.fromisoformat(flight["time_hour"])
        begin = hour.replace(hour=hour.hour // 6 * 6)
        if begin + timedelta(hours=6) <= newest - timedelta(days=1):
            place = begin, flight["origin"], flight["dest"]
            delays_by_window[place].append(flight["dep_delay"])
    assert len(delays_by_window) > 50, "the flights are of some days"
    found = {(row.begin.astimezone(UTC), row.origin, row.dest): row for row in rows}
    assert found.keys() == delays_by_window.keys()
    for place, delays in delays_by_window.items():
        known = [delay for delay in delays if delay is not None]
        assert found[place].flights == len(delays)
        assert found[place].delay == (pytest.approx(sum(known) / len(known)) if known else None)
    assert "<svg" in module.html(rows)


def test_turnarounds_are_the_times_between_departures(
    spark: SparkSession, namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    module = example("turnarounds")
    table = str(tmp_path / "turnarounds")
    module.run(spark, table, namesrv=namesrv)
    rows = spark.read.parquet(table).collect()
    by_aircraft: dict[str, list[datetime]] = defaultdict(list)
    for flight in flights:
        if flight["tailnum"] is not None and flight["dep_delay"] is not None:
            hour = datetime.fromisoformat(flight["time_hour"])
            minutes = flight["minute"] + flight["dep_delay"]
            by_aircraft[flight["tailnum"]].append(hour + timedelta(minutes=minutes))
    expected = Counter[tuple[str, datetime, float]]()
    for aircraft, departures in by_aircraft.items():
        departures.sort()
        for before, after in pairwise(departures):
            hours = (after - before).total_seconds() / 3600
            expected[aircraft, after, round(hours, 6)] += hours > 0
    assert expected.total() > 400
    assert +expected == Counter(
        (row.tailnum, row.departed.astimezone(UTC), round(row.hours, 6)) for row in rows
    )
    text = module.html(rows)
    assert f"{len(rows):,} turn-arounds" in text
    assert "<svg" in text


def test_the_last_departure_of_the_batch_before_counts() -> None:
    class State:
        exists = False
        get: tuple[int, ...] = ()

        def update(self, value: tuple[int, ...]) -> None:
            self.exists, self.get = True, value

    def hours(*departures: int) -> list[float]:
        times = pd.to_datetime([f"2013-01-01T{hour:02}:00" for hour in departures])
        rows = pd.DataFrame({"departed": times, "carrier": "UA", "origin": "EWR"})
        [result] = module.since_last(("N1",), iter([rows]), state)
        return list(result["hours"])

    module, state = example("turnarounds"), State()
    assert hours(7, 5) == [2.0]
    assert hours(6, 17, 12) == [5.0, 5.0], "the one at six came too late"
    assert hours(18) == [1.0]


def test_a_late_aircraft_raises_one_alarm(
    spark: SparkSession, namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    module = example("alarms")
    for _ in range(2):  # a second run goes on, and finds nothing new
        module.run(spark, "alarms", str(tmp_path / "checkpoint"), namesrv=namesrv)
    late = {f["tailnum"] for f in flights if (f["dep_delay"] or 0) > 120 and f["tailnum"]}
    assert _messages(namesrv, "alarms") == len(late)
    alarms = module.read(spark, "alarms", namesrv=namesrv).collect()
    assert {alarm.tailnum for alarm in alarms} == late
    text = module.html(alarms)
    assert f"{len(late):,} alarms" in text
    assert "<svg" in text


def test_flights_are_joined_with_the_alarms_that_they_follow(
    spark: SparkSession, namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    example("alarms").run(spark, "late_aircraft", str(tmp_path / "raised"), namesrv=namesrv)
    raised = example("alarms").read(spark, "late_aircraft", namesrv=namesrv).collect()
    module, table = example("after_alarm"), str(tmp_path / "after")
    for _ in range(2):  # a second run goes on, and finds nothing new
        module.run(spark, "late_aircraft", table, namesrv=namesrv)
    expected = Counter(
        (alarm.tailnum, alarm.time_hour.astimezone(UTC), hour, flight["dep_delay"])
        for alarm in raised
        for flight in flights
        for hour in [datetime.fromisoformat(flight["time_hour"])]
        if flight["tailnum"] == alarm.tailnum
        and flight["dep_delay"] is not None
        and timedelta() < hour - alarm.time_hour.astimezone(UTC) <= timedelta(days=1)
    )
    assert expected.total() > 20
    rows = spark.read.parquet(table).collect()
    assert expected == Counter(
        (row.tailnum, row.raised.astimezone(UTC), row.time_hour.astimezone(UTC), row.dep_delay)
        for row in rows
    )
    text = module.html(rows)
    assert f"{len(rows):,} flights" in text
    assert "<svg" in text


def test_the_declarative_pipeline_makes_its_tables_and_its_topic(
    namesrv: str, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    for name in ("yaml", "grpc", "zstandard"):
        pytest.importorskip(name, reason="pip install 'pyspark[pipelines]'")
    project = EXAMPLES / "pipeline"
    text = (project / "spark-pipeline.yml").read_text("utf-8")
    [storage] = [line for line in text.splitlines() if line.startswith("storage:")]
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(text.replace(storage, f"storage: file://{tmp_path}/storage"), "utf-8")
    shutil.copytree(project / "transformations", tmp_path / "transformations")
    ended = subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), "run", "--spec", spec],
        env=_environment(namesrv),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "COMPLETED" in ended.stdout + ended.stderr
    late = [f for f in flights if f["dep_delay"] is not None and f["dep_delay"] > 60]
    assert _messages(namesrv, "late_flights") == len(late)


def _environment(namesrv: str) -> dict[str, str]:
    environ = {**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": str(ROOT / "src")}
    environ["SPARK_HOME"] = pyspark.__path__[0]
    prepare_environment(environ)
    return environ


def _messages(namesrv: str, topic: str) -> int:
    latest = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,))).latest()
    return sum(latest.values())
