"""Deduplication with state: one alarm for each late aircraft and day, as messages of a topic.

    roquet topic create alarms
    NAMESRV_ADDR=127.0.0.1:9876 python examples/spark/alarms.py alarms

Needs a cluster with the topic `flights`, as `roquet demo` makes it. Who has raised an alarm raises
no other one within a day, by the flights' own time; Spark forgets an aircraft after that. The
alarms are sent by the sink of this package. alarms.html shows how many there were each day.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from roquet.pictures.page import Cell, Section, page
from roquet.pictures.plots import PlotSeries, line_plot
from roquet.spark.session import session
from roquet.spark.typed import typed

FLIGHT = (
    "carrier string, flight int, tailnum string, origin string, dep_delay int, time_hour timestamp"
)
LATE_MINUTES = 120
QUIET = "1 day"


def transform(messages: DataFrame) -> DataFrame:
    """Messages to alarms, with the columns that the sink sends."""
    flights = typed(messages.select("body"), FLIGHT)
    late = flights.where(F.col("dep_delay") > LATE_MINUTES).where("tailnum is not null")
    first = late.withWatermark("time_hour", QUIET).dropDuplicatesWithinWatermark(["tailnum"])
    alarm = F.to_json(F.struct("tailnum", "carrier", "flight", "origin", "dep_delay", "time_hour"))
    return first.select(
        alarm.alias("body"),
        F.col("carrier").alias("tag"),
        F.col("tailnum").alias("key"),
        F.col("tailnum").alias("order_key"),
    )


def run(spark: SparkSession, topic: str, checkpoint: str, **options: str) -> None:
    """Alarms of all that is there now; goes on where it was."""
    messages = (
        spark.readStream.format("roquet")
        .option("topic", "flights")
        .option("columns", "body")
        .options(**options)
        .load()
    )
    query = (
        transform(messages)
        .writeStream.format("roquet")
        .option("topic", topic)
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read(spark: SparkSession, topic: str, **options: str) -> DataFrame:
    """The alarms of the topic."""
    messages = spark.read.format("roquet").option("topic", topic).options(**options).load()
    return typed(messages.select("body"), FLIGHT)


def html(alarms: Iterable[Row]) -> str:
    """A page with the number of alarms of each day."""
    days = Counter(row.time_hour.date() for row in alarms)
    first = min(days, default=None)
    x = [(day - first).days for day in sorted(days)] if first else []
    curve = PlotSeries(name="alarms", x=x, y=[days[day] for day in sorted(days)])
    picture = line_plot([curve], x=f"days since {first}", y="alarms") if first else ""
    section = Section(title="Alarms by day", content=picture)
    return page("Late aircraft", Cell(f"{sum(days.values()):,} alarms"), [section])


if __name__ == "__main__":
    topic = sys.argv[1]
    spark = session("alarms")
    run(spark, topic, str(Path(f"{topic}-checkpoint").absolute()))
    result = Path(f"{topic}.html").absolute()
    result.write_text(html(read(spark, topic).collect()), "utf-8")
    print(result.as_uri())
    spark.stop()
