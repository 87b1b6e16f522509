"""Archives through Spark: restarts of all that there is, and real kills; minutes long."""

from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic

from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, run
from roquet.spark.jobs.job_runner import JobFailed

pytestmark = pytest.mark.spark_suite

KINDS = ("delta", "iceberg")
ROWS = 3_000


def archive(
    spark: SparkSession, orders: PersistentTopic, table: Path, kind: str, **params: Any
) -> ArchiveProgress:
    options = {"namesrv": orders.namesrv, "minPartitions": "2", **params.pop("options", {})}
    wanted = Params(topic="orders", target=str(table), kind=kind, options=options, **params)
    return run(wanted, lambda: spark)


def bodies(table: Path, kind: str) -> list[bytes]:
    """What anybody else reads."""
    if kind == "delta":
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
    archive(spark, orders, table, "delta")
    orders.running.stop_broker(0)
    orders.running.start_broker(0)
    orders.send()
    assert archive(spark, orders, table, "delta").rows == 4 * ROWS
    assert bodies(table, "delta") == sorted(orders.sent)


def test_the_queues_of_a_new_broker_are_archived_from_their_first_message(
    spark: SparkSession, orders: PersistentTopic, tmp_path: Path
) -> None:
    table = tmp_path / "lake"
    orders.send()
    archive(spark, orders, table, "delta", options={"startingOffsets": "latest"})
    del orders.sent[:]
    orders.running.add_broker()
    orders.make()
    orders.send(1)
    archive(spark, orders, table, "delta", options={"startingOffsets": "latest"})
    assert bodies(table, "delta") == sorted(orders.sent)


def test_a_task_that_dies_is_done_again(
    spark: SparkSession, orders: PersistentTopic, tmp_path: Path
) -> None:
    """Here it has one attempt only, so the job fails, and nothing is half there."""
    from roquet.lake.task_set import TaskResult
    from roquet.spark.jobs.archive import archive_tasks

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
