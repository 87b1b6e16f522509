"""One table, four readers of others: DuckDB, Polars, pyarrow and Spark give the same figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic

from roquet.cli.lake.query import results
from roquet.lake.arrow_dataset import arrow_dataset
from roquet.lake.snapshot import read_snapshot
from roquet.spark.jobs.archive.archive_job import Params, run

pytestmark = pytest.mark.spark_suite

COUNT = 500
"""Messages in each of four queues, sent in two halves."""


class Figures(NamedTuple):
    rows: int
    offsets: int
    body_bytes: int
    keys: int
    """Distinct keys."""


class Table(NamedTuple):
    kind: str
    root: Path
    files: list[str]


def by_duckdb(table: Table) -> Figures:
    import duckdb

    rows = arrow_dataset(str(table.root))
    sums = "select count(*), sum(queue_offset), sum(octet_length(body)), count(distinct key)"
    with duckdb.connect() as connection:
        connection.register("through_arrow", rows)
        [through_arrow] = connection.execute(f"{sums} from through_arrow").fetchall()
        [own] = connection.execute(f"{sums} from read_parquet({table.files!r})").fetchall()
    assert through_arrow == own
    return Figures(*map(int, own))


def by_polars(table: Table) -> Figures:
    import polars as pl

    rows: Any
    if table.kind == "delta":
        rows = pl.scan_delta(str(table.root))
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("roquet", uri=f"sqlite:///{table.root}/catalog.db")
        rows = pl.scan_iceberg(catalog.load_table("roquet.orders"))
    column = pl.col
    sums = rows.select(
        pl.len(),
        offsets=column("queue_offset").sum(),
        size=column("body").bin.size().sum(),
        keys=column("key").n_unique(),
    )
    return Figures(*map(int, sums.collect().row(0)))


def by_pyarrow(table: Table) -> Figures:
    rows = ds.dataset(table.files, format="parquet").to_table(
        columns=["queue_offset", "body", "key"]
    )
    body_bytes = pc.sum(pc.binary_length(rows["body"]))
    return Figures(
        rows.num_rows,
        pc.sum(rows["queue_offset"]).as_py(),
        body_bytes.as_py(),
        pc.count_distinct(rows["key"]).as_py(),
    )


def by_spark(spark: SparkSession) -> Callable[[Table], Figures]:
    def read(table: Table) -> Figures:
        [row] = (
            spark.read.parquet(*table.files)  # without jars Spark knows Parquet
            .selectExpr(
                "count(*)", "sum(queue_offset)", "sum(octet_length(body))", "count(distinct key)"
            )
            .collect()
        )
        return Figures(*map(int, row))

    return read


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, orders: PersistentTopic, tmp_path: Path) -> Table:
    """A table of two runs, the second of which has merged some files."""
    kind, root = request.param, tmp_path / "lake"
    for is_last in (False, True):
        orders.send(count=COUNT // 2, keys=10)
        params = Params(
            topic="orders",
            target=str(root),
            kind=kind,
            compact=is_last,
            options={"namesrv": orders.namesrv, "maxOffsetsPerTrigger": "600"},
        )
        stub: Any = InProcessSpark
        run(params, stub)
    return Table(kind, root, list(read_snapshot(str(root)).paths))


def figures(orders: PersistentTopic) -> Figures:
    size = sum(map(len, orders.sent))
    return Figures(rows=4 * COUNT, offsets=4 * sum(range(COUNT)), body_bytes=size, keys=40)


def test_duckdb_pyarrow_and_spark_see_the_same_rows(
    spark: SparkSession, orders: PersistentTopic, table: Table
) -> None:
    assert by_pyarrow(table) == by_duckdb(table) == by_spark(spark)(table) == figures(orders)


def test_spark_and_duckdb_find_the_same_rows_by_a_condition_on_any_column(
    spark: SparkSession, table: Table
) -> None:
    rows = spark.read.parquet(*table.files)
    rows.createOrReplaceTempView("archived")
    conditions = ["topic = 'orders'", "tag is null", "key = 'k3'", "body is not null"]
    conditions += ["queue_id = 0 and queue_offset >= 100", "stored_at > '2020-01-01'"]
    counts = [f"(select count(*) from archived where {condition})" for condition in conditions]
    query = f"select {', '.join(counts)}"
    with results(query, {"archived": str(table.root)}, {}) as reader:
        [by_duckdb] = [tuple(row.values()) for row in reader.read_all().to_pylist()]
    assert by_duckdb == tuple(spark.sql(query).collect()[0])
    assert by_duckdb[0] == by_duckdb[3] == 4 * COUNT


def test_polars_sees_the_same_rows(
    orders: PersistentTopic, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    assert by_polars(table) == figures(orders)
