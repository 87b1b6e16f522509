"""Running: a Spark for a job, and one job of tasks that answer in a line each."""

import os
import re
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.model.errors import RoquetError
from roquet.spark.jobs.errand import Answer, Errand, perform
from roquet.spark.session import is_local, session
from roquet.spark.tasks import BrokerAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*,4]"
"""All cores, and four attempts for a task: without the number Spark makes one."""

GIVEN: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""What is set where somebody else has chosen a Spark: `spark-submit`, and Spark Connect."""


MARKS: Final = ("Error: ", "Cannot run program")
"""In the line that has the cause: Python's, and Java's when workers have no Python where we say."""


NOT_THERE: Final = "does not exist in the JVM"
CUT_OFF: Final = re.compile(r"An error occurred while calling \S+")
"""All that py4j says of a call that got no answer; of an error of Java's it has a second line."""


class JobFailed(RoquetError):
    """Spark could not do it; nothing was committed."""


def is_given(master: str | None) -> bool:
    """Whether somebody else has chosen a Spark, and so a Java."""
    return master is None and any(one in os.environ for one in GIVEN)


def spark_for(name: str, master: str | None) -> "SparkSession":
    """The Spark that is given, else one on this machine; JobFailed when its Java goes meanwhile."""
    try:
        return _spark_for(name, master)
    except Exception as error:
        if _is_gone(error):
            raise JobFailed(_told(error)) from error
        raise


def _spark_for(name: str, master: str | None) -> "SparkSession":
    if is_given(master):
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName(name).getOrCreate()
    # Its own bar, and its warnings of what a laptop lacks, are not for those who run a job.
    spark = session(name, master or LOCAL, **{"spark.ui.showConsoleProgress": "false"})
    if is_local(master or LOCAL):  # a cluster's tell why nothing begins: no worker has a core free
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def answers(spark: "SparkSession", errand: Errand) -> list[Answer]:
    """What the tasks of an errand answer; JobFailed when one cannot be done."""
    count = len(errand)

    def work(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return perform(errand, batches)

    try:
        numbers = spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(work, "answer string").collect()
    except Exception as error:
        raise JobFailed(_told(error)) from error
    found = [msgspec.json.decode(row["answer"], type=Answer) for row in rows]
    for answer in found:
        if answer.error is not None:
            raise BrokerAway(answer.error) if answer.is_away else JobFailed(answer.error)
    return found


def _is_gone(error: Exception) -> bool:
    """Whether Java is; py4j meets that as a network does, or as if Java had lost its classes."""
    kind, text = type(error).__name__, str(error)
    return (
        isinstance(error, ConnectionError | EOFError)
        or kind == "Py4JNetworkError"
        or (kind == "Py4JError" and (NOT_THERE in text or CUT_OFF.fullmatch(text) is not None))
    )


def _told(error: Exception) -> str:
    """What has become of a job."""
    if _is_gone(error):
        return f"Spark's Java has gone ({last_line(error)}); start again: it goes on where it was"
    return f"the Spark job failed: {last_line(error)}"


def last_line(error: Exception) -> str:
    """What went wrong, out of a text that may hold the traces of two languages."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "File ", "..."))]
    causes = [line for line in told if line.startswith("roquet.") or any(m in line for m in MARKS)]
    return (causes or told or [type(error).__name__])[-1]
