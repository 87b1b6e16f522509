"""An audit whose files Spark's workers look at says what one in this process says."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from roquet.spark.jobs import archive, audit

pytestmark = pytest.mark.spark_suite


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_sparks_workers_find_what_is_doubled_and_what_is_missing(
    spark: SparkSession,
    topics: Any,
    tmp_path: Path,
    kind: str,
) -> None:
    topics.create("orders")
    for queue_id in (0, 1):
        topics.send("orders", 500, queue_id=queue_id)
    options = {"namesrv": topics.namesrv}
    lake = str(tmp_path / "lake")
    archive.run(
        archive.Params(topic="orders", target=lake, kind=kind, options=options), lambda: spark
    )
    params = audit.Params(topic="orders", target=lake, options=options)
    report = audit.run(params, lambda: spark)
    assert report == audit.run(params)
    assert report.is_clean
    assert report.rows == 1000
