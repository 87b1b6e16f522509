"""from_json, a window, a table: how late the flights of each hour and airport left.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/spark/flights_by_hour.py lake/hours

Needs a cluster with the topic `flights` in it, as `roquet demo` makes it, and goes on where it was
when it is started again. The table has a row for each hour and airport; it is written anew after
each batch, so readers never see half an hour.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from roquet.spark.session import session
from roquet.spark.typed import typed

FLIGHT = "carrier string, origin string, dest string, dep_delay int, time_hour timestamp"


def transform(messages: DataFrame) -> DataFrame:
    """Messages to hours. Pure: the same for a stream, for a batch and for a test."""
    flights = typed(messages.select("body"), FLIGHT)
    return (
        flights.groupBy(F.window("time_hour", "1 hour"), "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("delay"),
        )
        .select(F.col("window.start").alias("hour"), "origin", "flights", "departed", "delay")
    )


def run(spark: SparkSession, table: str, **options: str) -> None:
    """All that is there now into the table."""
    messages = (
        spark.readStream.format("roquet")
        .option("topic", "flights")
        .option("columns", "body")
        .options(**options)
        .load()
    )

    def write(hours: DataFrame, _: int) -> None:
        hours.coalesce(1).write.mode("overwrite").parquet(table)

    query = (
        transform(messages)
        .writeStream.outputMode("complete")
        .option("checkpointLocation", f"{table}-checkpoint")
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    table = str(Path(sys.argv[1]).absolute())
    spark = session("flights by hour")
    run(spark, table)
    spark.read.parquet(table).orderBy(F.desc("delay")).show(10, truncate=False)
    spark.stop()
