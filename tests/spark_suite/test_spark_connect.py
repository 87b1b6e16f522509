"""Spark Connect: source, sink and jobs from a client whose driver is a server elsewhere."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable as Log
from tests.spark_suite.conftest import PersistentTopic
from tests.spark_suite.spark_processes import SOURCES, connect_server

pytestmark = [pytest.mark.spark_suite, pytest.mark.xdist_group("spark")]

CORES = 3
COUNT = 10_000
"""Messages to each of four queues: enough for a task on each core."""

READS_AND_WRITES = """
import sys

from roquet.spark.session import session
from roquet.spark.typed import read_json

url, namesrv, folder = sys.argv[1:]
spark = session("test", url)
options = {"namesrv": namesrv, "topic": "orders"}
frame = spark.read.format("roquet").options(**options).load()
print("batch", frame.count(), frame.select("body").distinct().count())
print("typed", read_json(spark, options, "a bigint").count())

stream = spark.readStream.format("roquet").options(**options).load()
writer = stream.select("body").writeStream.format("roquet").option("namesrv", namesrv)
writer = writer.option("topic", "copies").option("checkpointLocation", f"{folder}/checkpoint")
query = writer.trigger(availableNow=True).start()
assert query.awaitTermination(200)
rows = spark.createDataFrame([(b"one",), (b"two",)], "body binary")
rows.write.format("roquet").options(namesrv=namesrv, topic="copies").mode("append").save()
copies = spark.read.format("roquet").options(namesrv=namesrv, topic="copies").load()
print("copies", copies.count(), copies.select("body").distinct().count())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect"), CORES) as url:
        yield url


def run(arguments: Sequence[str], **environ: str) -> "subprocess.CompletedProcess[str]":
    """A Python process without a Java of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "JAVA_", "PYSPARK"))}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(SOURCES), "JAVA_HOME": "/nowhere", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def roquet(*arguments: str, **environ: str) -> str:
    done = run(["-m", "roquet", *arguments], **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_copies(orders: PersistentTopic) -> None:
    roquet("topic", "create", "copies", "--queues", "4", "--namesrv", orders.namesrv)


def test_source_stream_and_sink_work_over_spark_connect(
    server: str, orders: PersistentTopic, tmp_path: Path
) -> None:
    orders.send(count=50)
    make_copies(orders)
    done = run(["-c", READS_AND_WRITES, server, orders.namesrv, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["batch 200 200", "typed 200", "copies 202 202"]


def test_jobs_run_over_spark_connect(server: str, orders: PersistentTopic, tmp_path: Path) -> None:
    orders.send(count=COUNT)
    make_copies(orders)
    lake, namesrv = str(tmp_path / "lake"), ("--namesrv", orders.namesrv)
    words = ["spark", "archive", "orders", lake, "--kind", "delta", "--json"]
    text = roquet(*words, "--master", server, *namesrv)
    assert json.loads(text)["rows"] == 4 * COUNT
    assert len(Log(lake).file_uris()) == CORES, "the server's cores, not those of this machine"
    rows = Log(lake).to_pyarrow_table(columns=["body"])
    assert sorted(rows["body"].to_pylist()) == sorted(orders.sent)

    text = roquet(*words[:-1], "--compact", *namesrv, SPARK_REMOTE=server)
    assert "small files merged" in text
    latest = str(tmp_path / "latest")
    text = roquet("spark", "materialize", "orders", latest, "--master", server, *namesrv)
    assert "4 rows written" in text

    text = roquet("spark", "replay", lake, "copies", "--master", server, *namesrv)
    assert f"{4 * COUNT:,} messages to copies" in text
    text = roquet("spark", "audit", "orders", lake, "--master", server, *namesrv)
    assert "nothing is missing or doubled" in text


def test_the_lab_refuses_spark_connect_in_a_sentence(server: str, tmp_path: Path) -> None:
    out = str(tmp_path / "lab")
    words = ["lab", "run", "--scenario", "zipf-keys", "--histories", "2", "--out", out]
    done = run(["-m", "roquet", *words, "--master", server])
    assert done.returncode == 2
    assert "the lab watches its Spark job from the driver" in done.stderr
    assert "Traceback" not in done.stderr
