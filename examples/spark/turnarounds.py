"""State by key: how long each aircraft takes from one departure to its next.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/spark/turnarounds.py lake/turnarounds

Needs a cluster with the topic `flights`, as `roquet demo` makes it: all flights of an aircraft are
in one queue. Spark keeps the last departure of each aircraft in the checkpoint, so that a stream
that is started again knows it. lake/turnarounds.html shows how many took how long.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from roquet.pictures.page import Cell, Section, page
from roquet.pictures.plots import PlotSeries, line_plot
from roquet.spark.session import session
from roquet.spark.typed import typed

FLIGHT = (
    "carrier string, flight int, tailnum string, origin string, minute int, dep_delay int, "
    "time_hour timestamp"
)
TURNAROUND = "tailnum string, carrier string, origin string, departed timestamp, hours double"
STATE = "last_us long"

HOURS_SHOWN = 48


def transform(messages: DataFrame) -> DataFrame:
    """Messages to turn-arounds; flights that were cancelled have no departure."""
    flights = typed(messages.select("body"), FLIGHT).where("dep_delay is not null")
    minutes = F.col("minute") + F.col("dep_delay")
    departed = F.col("time_hour") + F.make_dt_interval(mins=minutes)
    return (
        flights.where("tailnum is not null")
        .select("tailnum", "carrier", "origin", departed.alias("departed"))
        .groupBy("tailnum")
        .applyInPandasWithState(
            since_last, TURNAROUND, STATE, "append", GroupStateTimeout.NoTimeout
        )
    )


def since_last(
    key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The departures of one aircraft in a batch, with the hours since the one before each.

    One that is earlier than what the last batch had is left out: it came too late.
    """
    rows = pd.concat(parts).sort_values("departed")
    us = rows["departed"].astype("datetime64[us]").astype("int64")
    last_us: int | None = state.get[0] if state.exists else None
    before = us.shift(1)
    if last_us is not None:
        before = us.where(us > last_us).shift(1).fillna(last_us)
    rows["hours"] = (us - before) / 3_600_000_000
    newest_us = int(us.max())
    state.update((newest_us if last_us is None else max(newest_us, last_us),))
    rows["tailnum"] = key[0]
    known = rows[rows["hours"] > 0]
    yield known[["tailnum", "carrier", "origin", "departed", "hours"]]


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


def html(turnarounds: Iterable[Row]) -> str:
    """A page with the number of turn-arounds by their hours."""
    counts = [0] * HOURS_SHOWN
    total = 0
    for row in turnarounds:
        total += 1
        if row.hours < HOURS_SHOWN:
            counts[int(row.hours)] += 1
    curve = PlotSeries(name="turn-arounds", x=list(range(HOURS_SHOWN)), y=counts)
    picture = line_plot([curve], x="hours from one departure to the next", y="turn-arounds")
    section = Section(title="How long they take", content=picture)
    return page("Turn-arounds", Cell(f"{total:,} turn-arounds"), [section])


if __name__ == "__main__":
    table = str(Path(sys.argv[1]).absolute())
    spark = session("turnarounds")
    run(spark, table)
    Path(f"{table}.html").write_text(html(spark.read.parquet(table).collect()), "utf-8")
    print(Path(f"{table}.html").as_uri())
    spark.stop()
