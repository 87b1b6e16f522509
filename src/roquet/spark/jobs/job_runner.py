"""Job runner: a Spark session for a job, and one Spark job that runs a task set."""

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from roquet.lake.objects.object_store import StorageFailed
from roquet.lake.task_set import TaskResult, TaskSet
from roquet.model.errors import CallError, RoquetError
from roquet.spark.executors import check_workers, parallel_tasks, worker_fault
from roquet.spark.session import is_connect_url, is_local, session
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.spark.worker_process import log_as_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*,4]"
"""All cores, and four attempts for a task; without the second number Spark tries once."""

PROVIDED_BY: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""Environment variables by which `spark-submit` and Spark Connect provide a session."""

CAUSE_MARKS: Final = ("Error: ", "Cannot run program")
"""Parts of the line that names the cause: in Python's trace, and in Java's when a worker finds no
Python interpreter."""

OWN_ERROR: Final = re.compile(r"^roquet(\.\w+)+: ")
"""Name of an error of this package in a trace; its text says enough without it."""

CLASS_LOST: Final = "does not exist in the JVM"
CALL_CUT_OFF: Final = re.compile(r"An error occurred while calling \S+")
"""The whole message of py4j for a call without an answer; that of a Java error has more lines."""


class JobFailed(RoquetError):
    """A Spark job failed, and nothing was committed."""


def is_session_provided(master: str | None) -> bool:
    """Whether `spark-submit` or Spark Connect provides the session, and with it the Java."""
    if master is not None:
        return is_connect_url(master)
    return any(name in os.environ for name in PROVIDED_BY)


def spark_for(name: str, master: str | None) -> "SparkSession":
    """The provided Spark session, else a new one at `master`, by default on this machine.

    Raises JobFailed when the JVM ends meanwhile.
    """
    try:
        return _spark_for(name, master)
    except Exception as error:
        if _is_java_gone(error):
            raise JobFailed(_failure_text(error)) from error
        raise


def _spark_for(name: str, master: str | None) -> "SparkSession":
    if master is None and is_session_provided(None):
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName(name).getOrCreate()
    # Spark's own progress bar and its warnings about a laptop would only disturb the job's output.
    master = master or LOCAL
    conf = {} if is_connect_url(master) else {"spark.ui.showConsoleProgress": "false"}
    spark = session(name, master, **conf)
    if is_local(master):  # a cluster's warnings say when no worker has a free core
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def ready_cores(spark: "SparkSession") -> int | None:
    """Number of tasks that the session runs at once, once its workers are known to fit.

    None for a stand-in without a context. Raises ConfigError for workers with other versions,
    JobFailed when Spark cannot run a task.
    """
    try:
        check_workers(spark)
        return parallel_tasks(spark)
    except RoquetError:
        raise
    except Exception as error:
        raise JobFailed(_failure_text(error)) from error


def run_in_arrow(task_set: TaskSet, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: run the task of each number that comes in, and yield its result.

    A CallError or StorageFailed is raised, so that Spark tries again. Every other RoquetError is
    returned as a result: another attempt of Spark's would meet it again at once.
    """
    log_as_spark()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                result = task_set.run(number)
            except (CallError, StorageFailed):
                raise
            except RoquetError as error:
                is_retryable = isinstance(error, BrokerUnavailable)
                result = TaskResult(error=str(error), is_retryable=is_retryable)
            text = msgspec.json.encode(result).decode()
            yield pa.RecordBatch.from_pydict({"answer": [text]})


def run_task_set(spark: "SparkSession", task_set: TaskSet) -> list[TaskResult]:
    """Run all tasks in one Spark job, and return their results in the order of their numbers.

    Raises BrokerUnavailable or JobFailed for the first task that failed.
    """
    ready_cores(spark)
    count = len(task_set)

    def work(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return run_in_arrow(task_set, batches)

    try:
        numbers = spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(work, "answer string").collect()
    except Exception as error:
        raise JobFailed(_failure_text(error)) from error
    results = [msgspec.json.decode(row["answer"], type=TaskResult) for row in rows]
    for result in results:
        if result.error is not None:
            failure = BrokerUnavailable if result.is_retryable else JobFailed
            raise failure(result.error)
    return results


def _is_java_gone(error: Exception) -> bool:
    """Whether the JVM has ended: py4j then reports a network error, or that classes are missing."""
    kind, text = type(error).__name__, str(error)
    return (
        isinstance(error, ConnectionError | EOFError)
        or kind == "Py4JNetworkError"
        or (
            kind == "Py4JError" and (CLASS_LOST in text or CALL_CUT_OFF.fullmatch(text) is not None)
        )
    )


def _failure_text(error: Exception) -> str:
    if _is_java_gone(error):
        return (
            f"Spark's JVM has ended ({last_line(error)}); start the job again: it continues where "
            "it was"
        )
    if fault := worker_fault(str(error)):
        return fault
    return f"the Spark job failed: {OWN_ERROR.sub('', last_line(error))}"


def last_line(error: Exception) -> str:
    """The line that names the cause, from a text that may hold traces of Python and of Java."""
    lines = [line.strip() for line in str(error).splitlines()]
    texts = [line for line in lines if line and not line.startswith(("at ", "File ", "..."))]
    causes = [
        line
        for line in texts
        if line.startswith("roquet.") or any(mark in line for mark in CAUSE_MARKS)
    ]
    return (causes or texts or [type(error).__name__])[-1]
