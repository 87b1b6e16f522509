"""A dashboard of a topic: messages by tag over time, and how far behind the query is.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/spark/dashboard.py flights dashboard.html

The page is one file that needs nothing else; it is written anew after each batch, and a browser
that shows it asks for it again every five seconds. Ctrl-C ends it.
"""

import sys
import time
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so
from pyspark.sql.streaming.query import StreamingQuery

from roquet.pictures.page import Cell, Section, page, table
from roquet.pictures.plots import PlotSeries, line_plot
from roquet.spark.listener import ProgressListener, QueryProgress
from roquet.spark.session import session

STEP_S = 10
STEPS_SHOWN = 60
TAGS_SHOWN = 8
RELOAD = '<meta http-equiv="refresh" content="5">\n<meta charset'


def transform(messages: DataFrame) -> DataFrame:
    """Messages to counts by time and tag. Pure."""
    return (
        messages.withWatermark("stored_at", "10 minutes")
        .groupBy(F.window("stored_at", f"{STEP_S} seconds"), "tag")
        .count()
        .select(F.col("window.start").alias("at"), "tag", "count")
    )


class Dashboard:
    """Recent counts, and their page."""

    def __init__(self, topic: str, path: Path) -> None:
        self.topic, self.path = topic, path
        self.counts: dict[str, dict[float, int]] = defaultdict(dict)
        self.said: list[str] = []

    def take(self, counts: DataFrame, _: int) -> None:
        """A batch's changes: the whole count of each step and tag that it has touched."""
        for row in counts.collect():
            self.counts[row["tag"] or "no tag"][row["at"].timestamp()] = row["count"]
        self.path.write_text(self.html(), "utf-8")

    def hear(self, progress: QueryProgress) -> None:
        """Progress that a query reports after a batch."""
        self.said = [*self.said[-9:], str(progress)]

    def html(self) -> str:
        """The page."""
        steps = sorted({at for one in self.counts.values() for at in one})[-STEPS_SHOWN:]
        total = {tag: sum(one.values()) for tag, one in self.counts.items()}
        largest = sorted(total, key=lambda tag: (-total[tag], tag))
        curves = [
            PlotSeries(
                name=tag,
                x=[at - steps[0] for at in steps],
                y=[self.counts[tag].get(at, 0) / STEP_S for at in steps],
            )
            for tag in largest[:TAGS_SHOWN]
        ]
        picture = line_plot(curves, x="seconds", y="messages a second") if curves else ""
        sections = [
            Section(title="Messages by tag", content=picture),
            Section(
                title="Counted",
                content=table(["tag", "messages"], [[t, total[t]] for t in largest]),
            ),
            Section(title="Batches", content=table(["query"], [[text] for text in self.said])),
        ]
        verdict = Cell(f"{sum(total.values()):,} messages of {len(total)} tags")
        return page(f"Topic {self.topic}", verdict, sections).replace("<meta charset", RELOAD, 1)


def start(
    spark: SparkSession, dashboard: Dashboard, *, once: bool = False, **options: str
) -> StreamingQuery:
    """A query that feeds the dashboard; `once` ends with what there is now."""
    messages = (
        spark.readStream.format("roquet")
        .option("topic", dashboard.topic)
        .option("columns", "tag, stored_at")
        .options(**options)
        .load()
    )
    spark.streams.addListener(ProgressListener(dashboard.hear))
    feed = transform(messages).writeStream.outputMode("update").foreachBatch(dashboard.take)
    feed = feed.trigger(availableNow=True) if once else feed.trigger(processingTime="2 seconds")
    return feed.queryName("dashboard").start()


if __name__ == "__main__":
    dashboard = Dashboard(sys.argv[1], Path(sys.argv[2]).absolute())
    print(dashboard.path.as_uri())
    query = start(session("dashboard"), dashboard)
    try:
        while query.isActive:  # in a wait within Java Ctrl-C would end with traces of both
            time.sleep(1)
        query.awaitTermination()  # raises what ended it
    except KeyboardInterrupt:
        query.stop()
