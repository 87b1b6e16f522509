"""Archives through Spark: restarts of all that there is, and real kills; minutes long."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from roquet.arrow.encode import batch_bodies, encode
from roquet.model.errors import UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, run
from roquet.spark.jobs.job_runner import JobFailed
from roquet.spark.options import SourceOptions
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import SendBatch

pytestmark = pytest.mark.spark_suite

KINDS = ("parquet", "delta", "iceberg")
ROWS = 3_000


class PersistentTopic:
    """A topic in a cluster whose files outlive its brokers."""

    def __init__(self, running: BlockingCluster) -> None:
        self.running, self.sent = running, list[bytes]()
        self.make(0)

    @property
    def namesrv(self) -> str:
        return self.running.namesrv_addr

    def make(self, broker: int) -> None:
        with BlockingChannel(self.running.broker_addrs[broker]) as channel:
            channel.call(CreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=6))
        cluster = ClusterClient(SourceOptions(namesrv=(self.namesrv,), topics=("orders",)))
        for _ in range(100):
            with suppress(UsageError):
                if len(cluster.latest()) == 4 * (broker + 1):
                    return
            cluster.pause(50)
        raise AssertionError("the name server never heard of the topic")

    def send(self, broker: int = 0, count: int = ROWS) -> None:
        """As many to each of a broker's queues."""
        with BlockingChannel(self.running.broker_addrs[broker]) as channel:
            for queue_id in range(4):
                bodies = [
                    b"%d/%d/%d" % (broker, queue_id, at + len(self.sent)) for at in range(count)
                ]
                items = encode(pa.RecordBatch.from_pydict({"body": bodies}))
                for body in batch_bodies(items, 1_000_000):
                    call = SendBatch(
                        producer_group="tests",
                        topic="orders",
                        queue_id=queue_id,
                        born_timestamp=1_700_000_000_000,
                        body=body,
                    )
                    channel.call(call)
                self.sent += bodies


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[PersistentTopic]:
    with BlockingCluster(store=tmp_path / "brokers") as running:
        yield PersistentTopic(running)


def archive(
    spark: SparkSession, orders: PersistentTopic, table: Path, kind: str, **params: Any
) -> ArchiveProgress:
    options = {"namesrv": orders.namesrv, "minPartitions": "2", **params.pop("options", {})}
    wanted = Params(topic="orders", target=str(table), kind=kind, options=options, **params)
    return run(wanted, lambda: spark)


def bodies(table: Path, kind: str) -> list[bytes]:
    """What anybody else reads."""
    if kind == "parquet":
        files = [str(path) for path in table.glob("day=*/*.parquet")]
        rows = ds.dataset(files).to_table(columns=["body"])
    elif kind == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(str(table)).to_pyarrow_table(columns=["body"])
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        with closing(SqlCatalog("roquet", uri=f"sqlite:///{table}/catalog.db")) as catalog:
            rows = catalog.load_table("roquet.orders").scan(selected_fields=("body",)).to_arrow()
    return sorted(rows["body"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_runs_batches_and_merges_make_one_table(
    spark: SparkSession, orders: PersistentTopic, tmp_path: Path, kind: str
) -> None:
    table = tmp_path / "lake"
    for turn in range(3):
        orders.send()
        options = {"maxOffsetsPerTrigger": "5000"}
        done = archive(spark, orders, table, kind, options=options, compact=turn == 2)
        assert done.rows == 4 * ROWS
    assert bodies(table, kind) == sorted(orders.sent)
    assert archive(spark, orders, table, kind).rows == 0


def test_a_broker_that_starts_again_between_runs(
    spark: SparkSession, orders: PersistentTopic, tmp_path: Path
) -> None:
    table = tmp_path / "lake"
    orders.send()
    archive(spark, orders, table, "parquet")
    orders.running.stop_broker(0)
    orders.running.start_broker(0)
    orders.send()
    assert archive(spark, orders, table, "parquet").rows == 4 * ROWS
    assert bodies(table, "parquet") == sorted(orders.sent)


def test_the_queues_of_a_new_broker_are_archived_from_their_first_message(
    spark: SparkSession, orders: PersistentTopic, tmp_path: Path
) -> None:
    table = tmp_path / "lake"
    orders.send()
    archive(spark, orders, table, "delta", options={"startingOffsets": "latest"})
    del orders.sent[:]
    orders.running.add_broker()
    orders.make(1)
    orders.send(1)
    archive(spark, orders, table, "delta", options={"startingOffsets": "latest"})
    assert bodies(table, "delta") == sorted(orders.sent)


def test_a_task_that_dies_is_done_again(
    spark: SparkSession, orders: PersistentTopic, tmp_path: Path
) -> None:
    """Here it has one attempt only, so the job fails, and nothing is half there."""
    from roquet.spark.jobs.archive import archive_tasks
    from roquet.spark.jobs.task_set import TaskResult

    table, mark = tmp_path / "lake", tmp_path / "died"
    orders.send()
    run = archive_tasks.ArchiveTasks.run

    def dies(self: archive_tasks.ArchiveTasks, number: int) -> TaskResult:
        answer = run(self, number)
        if not mark.exists():
            mark.touch()
            raise OSError("the worker has died behind its work")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_tasks.ArchiveTasks, "run", dies)
        in_process = cast("SparkSession", InProcessSpark())
        with pytest.raises(JobFailed, match="the worker has died"):
            archive(in_process, orders, table, "iceberg")
    assert archive(spark, orders, table, "iceberg").rows == 4 * ROWS
    assert bodies(table, "iceberg") == sorted(orders.sent)
    assert len(list(table.rglob("*.parquet"))) <= 2, "what the dead task wrote is gone"


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class InProcessSpark:
    """A Spark whose workers are this process, so that they can be made to fail."""

    def range(self, _start: int, end: int, _step: int, _parts: int) -> "InProcessSpark":
        self._count = end
        return self

    def mapInArrow(self, work: Work, _schema: str) -> "InProcessSpark":  # noqa: N802
        self._work = work
        return self

    def collect(self) -> list[Any]:
        numbers = (pa.RecordBatch.from_pydict({"id": [at]}) for at in range(self._count))
        return [row for answer in self._work(numbers) for row in answer.to_pylist()]
