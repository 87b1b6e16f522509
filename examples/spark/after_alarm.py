"""Join of two topics: how late an aircraft is on the flights of the day after its alarm.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/spark/after_alarm.py alarms lake/after

Needs a cluster with the topic `flights`, as `roquet demo` makes it, and the topic of alarms.py.
Both sides have a watermark, so Spark forgets alarms that no flight can follow any more.
lake/after.html shows how the delay wears off.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from roquet.pictures.page import Cell, Section, page
from roquet.pictures.plots import PlotSeries, line_plot
from roquet.spark.session import session
from roquet.spark.typed import typed

FLIGHT = "tailnum string, origin string, dest string, dep_delay int, time_hour timestamp"
ALARM = "tailnum string, dep_delay int, time_hour timestamp"
LATE = "1 day"
"""Messages that come later than this, by their own time, are left out."""

HOURS = 24


def transform(flights: DataFrame, alarms: DataFrame) -> DataFrame:
    """Messages of both topics to the flights that follow an alarm. Pure."""
    later = (
        typed(flights.select("body"), FLIGHT)
        .where("dep_delay is not null")
        .withWatermark("time_hour", LATE)
    )
    raised = (
        typed(alarms.select("body"), ALARM)
        .select(
            F.col("tailnum").alias("late_tailnum"),
            F.col("dep_delay").alias("alarm_delay"),
            F.col("time_hour").alias("raised"),
        )
        .withWatermark("raised", LATE)
    )
    is_after = (
        (F.col("tailnum") == F.col("late_tailnum"))
        & (F.col("time_hour") > F.col("raised"))
        & (F.col("time_hour") <= F.col("raised") + F.expr(f"interval {HOURS} hours"))
    )
    return later.join(raised, is_after).select(
        "tailnum", "origin", "dest", "raised", "alarm_delay", "time_hour", "dep_delay"
    )


def run(spark: SparkSession, alarms: str, table: str, **options: str) -> None:
    """All that is there now into the table; goes on where it was."""

    def messages(topic: str) -> DataFrame:
        reader = spark.readStream.format("roquet").option("topic", topic).option("columns", "body")
        return reader.options(**options).load()

    query = (
        transform(messages("flights"), messages(alarms))
        .writeStream.outputMode("append")
        .option("checkpointLocation", f"{table}-checkpoint")
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


def html(rows: Iterable[Row]) -> str:
    """A page with the mean delay by the hours since the alarm."""
    delays: dict[int, list[int]] = {}
    for row in rows:
        hours = int((row.time_hour - row.raised).total_seconds()) // 3600
        delays.setdefault(hours, []).append(row.dep_delay)
    x = sorted(delays)
    curve = PlotSeries(
        name="mean delay", x=x, y=[sum(delays[hour]) / len(delays[hour]) for hour in x]
    )
    picture = line_plot([curve], x="hours since the alarm", y="minutes") if x else ""
    section = Section(title="How the delay wears off", content=picture)
    return page("After an alarm", Cell(f"{sum(map(len, delays.values())):,} flights"), [section])


if __name__ == "__main__":
    alarms, table = sys.argv[1], str(Path(sys.argv[2]).absolute())
    spark = session("after alarms")
    run(spark, alarms, table)
    Path(f"{table}.html").write_text(html(spark.read.parquet(table).collect()), "utf-8")
    print(Path(f"{table}.html").as_uri())
    spark.stop()
