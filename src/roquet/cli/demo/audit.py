"""Audit: counts of the table that Spark wrote, by pure transforms."""

from typing import TYPE_CHECKING

from roquet.cli.demo.facts import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table_facts(table: "DataFrame") -> TableFacts:
    """Counts of the table's rows, gaps and disorder."""
    from pyspark.sql import functions as F  # noqa: N812

    totals = table.agg(F.count("*").alias("rows"), F.countDistinct("row").alias("distinct")).first()
    by_hour = table.groupBy("carrier", "hour").count().collect()
    carriers: dict[str, dict[int, int]] = {}
    for carrier, hour, count in by_hour:
        carriers.setdefault(carrier, {})[hour] = count
    return TableFacts(
        rows=totals["rows"] if totals else 0,
        distinct=totals["distinct"] if totals else 0,
        gaps=offset_gaps(table),
        disordered=disordered_aircraft(table),
        carriers=carriers,
    )


def offset_gaps(table: "DataFrame") -> int:
    """Number of queue offsets below the highest that no row has."""
    from pyspark.sql import functions as F  # noqa: N812

    missing = F.max("queue_offset") + 1 - F.countDistinct("queue_offset")
    queues = table.groupBy("broker", "queue_id").agg(missing.alias("missing"))
    return sum(int(queue["missing"]) for queue in queues.collect())


def disordered_aircraft(table: "DataFrame") -> int:
    """Number of aircraft whose flights are not in one queue in the order of the file."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    before = F.lag("row").over(Window.partitionBy("tailnum").orderBy("queue_offset"))
    queues = F.countDistinct("broker", "queue_id")
    return (
        table.where(F.col("tailnum").isNotNull())
        .withColumn("is_late", F.col("row") < before)
        .groupBy("tailnum")
        .agg(F.bool_or("is_late").alias("is_late"), queues.alias("queues"))
        .where("is_late or queues > 1")
        .count()
    )
