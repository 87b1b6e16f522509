"""The Spark examples on the first flights: each says of them what their file says."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pyspark
import pytest
from pyspark.sql import SparkSession

from roquet.cli.demo.flights import archive_path, read
from roquet.client import Producer, ProducerConfig
from roquet.model.errors import UsageError
from roquet.net import loop
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import SourceOptions
from roquet.spark.session import prepare_environment
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import CreateTopic

pytestmark = pytest.mark.spark_suite

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "spark"
FLIGHTS = 2_000


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
        with BlockingChannel(running.broker_addrs[0]) as channel:
            for topic in ("flights", "late_flights"):
                channel.call(
                    CreateTopic(topic=topic, read_queue_nums=4, write_queue_nums=4, perm=6)
                )
        for topic in ("flights", "late_flights"):
            _known(running.namesrv_addr, topic)
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


def _known(namesrv: str, topic: str) -> None:
    """Wait until the name server has heard of a topic."""
    cluster = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,)))
    for _ in range(100):
        with suppress(UsageError):
            if len(cluster.latest()) == 4:
                return
        cluster.pause(50)
    raise AssertionError("the name server never heard of the topic")


def _messages(namesrv: str, topic: str) -> int:
    latest = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,))).latest()
    return sum(latest.values())
