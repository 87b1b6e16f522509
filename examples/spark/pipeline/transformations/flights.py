"""The flights as tables of a declarative pipeline."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

FLIGHT = (
    "carrier string, tailnum string, origin string, dest string, dep_delay int, time_hour timestamp"
)
LATE_MINUTES = 60

spark = SparkSession.active()  # the pipeline has begun it


@dp.table
def flights() -> DataFrame:
    """Each message of the topic, with the fields of its body."""
    messages = spark.readStream.format("roquet").option("topic", "flights").load()
    flight = F.from_json(F.col("body").cast("string"), FLIGHT)
    return messages.withColumn("flight", flight).select(
        "broker", "queue_id", "queue_offset", "stored_at", "flight.*"
    )


@dp.materialized_view
def hours() -> DataFrame:
    """How many flights each airport had in each hour, and how late they left."""
    return (
        spark.read.table("flights")
        .groupBy("time_hour", "origin")
        .agg(F.count("*").alias("flights"), F.avg("dep_delay").alias("delay"))
    )


dp.create_sink("late_flights_topic", "roquet", {"topic": "late_flights"})


@dp.append_flow(target="late_flights_topic")
def late_flights() -> DataFrame:
    """Flights that left more than an hour late, for whoever listens."""
    late = spark.readStream.table("flights").where(F.col("dep_delay") > LATE_MINUTES)
    body = F.to_json(F.struct("carrier", "tailnum", "origin", "dest", "dep_delay", "time_hour"))
    return late.select(
        body.alias("body"), F.col("carrier").alias("tag"), F.col("tailnum").alias("key")
    )
