"""An audit whose files Spark's workers look at says what one in this process says."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark_suite.conftest import TopicCluster

from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.audit import audit_job

pytestmark = pytest.mark.spark_suite

GONE = {(0, 17), (0, 18), (1, 499)}
TWICE = {(0, 20), (1, 0)}
"""Queue and offset."""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_audit_on_spark_finds_duplicate_and_missing_rows(
    spark: SparkSession, topics: TopicCluster, tmp_path: Path, kind: str
) -> None:
    topics.create("orders")
    for queue_id in (0, 1):
        topics.send("orders", 500, queue_id=queue_id)
    options = {"namesrv": topics.namesrv}
    lake = str(tmp_path / "lake")
    archive_job.run(
        archive_job.Params(topic="orders", target=lake, kind=kind, options=options), lambda: spark
    )
    params = audit_job.Params(topic="orders", target=lake, options=options)
    assert audit_job.run(params, lambda: spark).is_clean
    for path in Path(lake).rglob("*.parquet"):
        _edit(path)
    report = audit_job.run(params, lambda: spark)
    assert report == audit_job.run(params), "as in this process"
    findings = [(one.what, one.queue_id, one.offsets, one.times) for one in report.findings]
    assert findings == [
        ("missing", 0, "17..18", 1),
        ("doubled", 0, "20", 2),
        ("doubled", 1, "0", 2),
        ("missing", 1, "499", 1),
    ]
    assert report.rows == 1000 - 3 + 2


def _edit(path: Path) -> None:
    """By hand, three rows go, and two come twice."""
    rows = pq.ParquetFile(path).read()
    kept = [row for row in rows.to_pylist() if _place(row) not in GONE]
    kept += [row for row in kept if _place(row) in TWICE]
    pq.write_table(pa.Table.from_pylist(kept, rows.schema), path)


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["queue_id"], row["queue_offset"]
