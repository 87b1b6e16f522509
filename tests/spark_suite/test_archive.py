"""Archives through Spark: restarts of all that there is, and real kills; minutes long."""

from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic

from roquet.spark.jobs.archive.archive_job import Params, run
from roquet.spark.jobs.job_runner import JobFailed

pytestmark = pytest.mark.spark_suite

KINDS = ("delta", "iceberg")
ROWS = 3_000


class Lake:
    def __init__(self, spark: SparkSession, orders: PersistentTopic, table: Path) -> None:
        self.spark, self.orders, self.table = spark, orders, table

    def archive(self, kind: str, spark: SparkSession | None = None, **params: Any) -> int:
        options = {
            "namesrv": self.orders.namesrv,
            "minPartitions": "2",
            **params.pop("options", {}),
        }
        wanted = Params(
            topic="orders", target=str(self.table), kind=kind, options=options, **params
        )
        return run(wanted, lambda: spark or self.spark).rows

    def bodies(self, kind: str) -> list[bytes]:
        if kind == "delta":
            from deltalake import DeltaTable

            rows = DeltaTable(str(self.table)).to_pyarrow_table(columns=["body"])
        else:
            from pyiceberg.catalog.sql import SqlCatalog

            with closing(SqlCatalog("roquet", uri=f"sqlite:///{self.table}/catalog.db")) as catalog:
                scan = catalog.load_table("roquet.orders").scan(selected_fields=("body",))
                rows = scan.to_arrow()
        return sorted(rows["body"].to_pylist())


@pytest.fixture
def lake(spark: SparkSession, orders: PersistentTopic, tmp_path: Path) -> Lake:
    return Lake(spark, orders, tmp_path / "lake")


@pytest.mark.parametrize("kind", KINDS)
def test_runs_batches_and_merges_make_one_table(lake: Lake, kind: str) -> None:
    for turn in range(3):
        lake.orders.send()
        options = {"maxOffsetsPerTrigger": "5000"}
        rows = lake.archive(kind, options=options, compact=turn == 2)
        assert rows == 4 * ROWS
    assert lake.bodies(kind) == sorted(lake.orders.sent)
    assert lake.archive(kind) == 0


def test_a_broker_that_starts_again_between_runs(lake: Lake) -> None:
    lake.orders.send()
    lake.archive("delta")
    lake.orders.running.stop_broker(0)
    lake.orders.running.start_broker(0)
    lake.orders.send()
    assert lake.archive("delta") == 4 * ROWS
    assert lake.bodies("delta") == sorted(lake.orders.sent)


def test_the_queues_of_a_new_broker_are_archived_from_their_first_message(lake: Lake) -> None:
    lake.orders.send()
    lake.archive("delta", options={"startingOffsets": "latest"})
    del lake.orders.sent[:]
    lake.orders.running.add_broker()
    lake.orders.make()
    lake.orders.send(1)
    lake.archive("delta", options={"startingOffsets": "latest"})
    assert lake.bodies("delta") == sorted(lake.orders.sent)


def test_a_task_that_dies_is_done_again(lake: Lake, tmp_path: Path) -> None:
    """Here it has one attempt only, so the job fails, and nothing is half there."""
    from roquet.lake.task_set import TaskResult
    from roquet.spark.jobs.archive import archive_tasks

    mark = tmp_path / "died"
    lake.orders.send()
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
            lake.archive("iceberg", in_process)
    assert lake.archive("iceberg") == 4 * ROWS
    assert lake.bodies("iceberg") == sorted(lake.orders.sent)
    assert len(list(lake.table.rglob("*.parquet"))) <= 2, "what the dead task wrote is gone"
