"""Running: a Spark for a job, and one job of tasks that answer in a line each."""

import os
import re
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.model.errors import RoquetError
from roquet.spark.jobs.task_set import TaskResult, TaskSet, run_in_arrow
from roquet.spark.session import is_local, session
from roquet.spark.source.tasks import BrokerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*,4]"
"""All cores, and four attempts for a task: without the number Spark makes one."""

PROVIDED_BY: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""What is set where somebody else has chosen a Spark: `spark-submit`, and Spark Connect."""


CAUSE_MARKS: Final = ("Error: ", "Cannot run program")
"""In the line that has the cause: Python's, and Java's when workers have no Python where we say."""


CLASS_LOST: Final = "does not exist in the JVM"
CALL_CUT_OFF: Final = re.compile(r"An error occurred while calling \S+")
"""All that py4j says of a call that got no answer; of an error of Java's it has a second line."""


class JobFailed(RoquetError):
    """Spark could not do it; nothing was committed."""


def is_session_provided(master: str | None) -> bool:
    """Whether somebody else has chosen a Spark, and so a Java."""
    return master is None and any(one in os.environ for one in PROVIDED_BY)


def spark_for(name: str, master: str | None) -> "SparkSession":
    """The Spark that is given, else one on this machine; JobFailed when its Java goes meanwhile."""
    try:
        return _spark_for(name, master)
    except Exception as error:
        if _is_java_gone(error):
            raise JobFailed(_failure_text(error)) from error
        raise


def _spark_for(name: str, master: str | None) -> "SparkSession":
    if is_session_provided(master):
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName(name).getOrCreate()
    # Its own bar, and its warnings of what a laptop lacks, are not for those who run a job.
    spark = session(name, master or LOCAL, **{"spark.ui.showConsoleProgress": "false"})
    if is_local(master or LOCAL):  # a cluster's tell why nothing begins: no worker has a core free
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_task_set(spark: "SparkSession", errand: TaskSet) -> list[TaskResult]:
    """What the tasks of an errand answer; JobFailed when one cannot be done."""
    count = len(errand)

    def work(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return run_in_arrow(errand, batches)

    try:
        numbers = spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(work, "answer string").collect()
    except Exception as error:
        raise JobFailed(_failure_text(error)) from error
    found = [msgspec.json.decode(row["answer"], type=TaskResult) for row in rows]
    for answer in found:
        if answer.error is not None:
            raise BrokerUnavailable(answer.error) if answer.is_away else JobFailed(answer.error)
    return found


def _is_java_gone(error: Exception) -> bool:
    """Whether Java is; py4j meets that as a network does, or as if Java had lost its classes."""
    kind, text = type(error).__name__, str(error)
    return (
        isinstance(error, ConnectionError | EOFError)
        or kind == "Py4JNetworkError"
        or (
            kind == "Py4JError" and (CLASS_LOST in text or CALL_CUT_OFF.fullmatch(text) is not None)
        )
    )


def _failure_text(error: Exception) -> str:
    """What has become of a job."""
    if _is_java_gone(error):
        return f"Spark's Java has gone ({last_line(error)}); start again: it goes on where it was"
    return f"the Spark job failed: {last_line(error)}"


def last_line(error: Exception) -> str:
    """What went wrong, out of a text that may hold the traces of two languages."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "File ", "..."))]
    causes = [
        line for line in told if line.startswith("roquet.") or any(m in line for m in CAUSE_MARKS)
    ]
    return (causes or told or [type(error).__name__])[-1]
