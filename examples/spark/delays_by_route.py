"""A window with a watermark: how late the flights of each route left, final six hours at a time.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/spark/delays_by_route.py lake/routes

Needs a cluster with the topic `flights`, as `roquet demo` makes it. The time is the flight's own:
a window is written once no flight of it is expected any more, a day later, and then never changed.
So the last day's windows are not in the table yet. lake/routes.html shows the latest of them.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from roquet.pictures.page import Cell, Section, page
from roquet.pictures.plots import heatmap
from roquet.spark.session import session
from roquet.spark.typed import typed

FLIGHT = "origin string, dest string, dep_delay int, time_hour timestamp"
LATE = "1 day"
"""Flights that come later than this, by their own time, are left out."""

ROUTES_SHOWN = 12
WINDOWS_SHOWN = 12


def transform(messages: DataFrame) -> DataFrame:
    """Messages to final windows. Pure: the same for a stream and for a test."""
    flights = typed(messages.select("body"), FLIGHT)
    return (
        flights.withWatermark("time_hour", LATE)
        .groupBy(F.window("time_hour", "6 hours"), "origin", "dest")
        .agg(F.count("*").alias("flights"), F.avg("dep_delay").alias("delay"))
        .select(F.col("window.start").alias("begin"), "origin", "dest", "flights", "delay")
    )


def run(spark: SparkSession, table: str, **options: str) -> None:
    """All that is there now into the table; goes on where it was."""
    messages = (
        spark.readStream.format("roquet")
        .option("topic", "flights")
        .option("columns", "body")
        .options(**options)
        .load()
    )
    query = (
        transform(messages)
        .writeStream.outputMode("append")
        .option("checkpointLocation", f"{table}-checkpoint")
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


def html(windows: Iterable[Row]) -> str:
    """A page with the mean delays of the busiest routes in the last windows."""
    rows = list(windows)
    begins = sorted({row.begin for row in rows})[-WINDOWS_SHOWN:]
    flights: dict[str, int] = {}
    for row in rows:
        flights[route(row)] = flights.get(route(row), 0) + row.flights
    busiest = sorted(flights, key=lambda name: (-flights[name], name))[:ROUTES_SHOWN]
    cells = {
        (route(row), begins.index(row.begin)): max(row.delay or 0.0, 0.0)
        for row in rows
        if row.begin in begins and route(row) in busiest
    }
    picture = heatmap(cells, x="window of six hours", y="", rows=busiest) if cells else ""
    since = f" since {begins[0]:%Y-%m-%d %H:%M}" if begins else ""
    section = Section(title=f"Mean delay{since}; the darker the later", content=picture)
    return page("Delays by route", Cell(f"{len(flights)} routes, {len(rows)} windows"), [section])


def route(row: Row) -> str:
    """EWR-IAH."""
    return f"{row.origin}-{row.dest}"


if __name__ == "__main__":
    table = str(Path(sys.argv[1]).absolute())
    spark = session("delays by route")
    run(spark, table)
    Path(f"{table}.html").write_text(html(spark.read.parquet(table).collect()), "utf-8")
    print(Path(f"{table}.html").as_uri())
    spark.stop()
