"""Tasks return one line each, and a failure is one sentence."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.spark.jobs.conftest import MakeSpark

from roquet.lake.objects.object_store import StorageFailed
from roquet.lake.task_set import TaskResult
from roquet.model.errors import CallTimeout, ConfigError, RoquetError
from roquet.spark.cluster.cluster_client import DataLost
from roquet.spark.jobs import job_runner
from roquet.spark.jobs.job_runner import (
    JobFailed,
    is_session_provided,
    last_line,
    ready_cores,
    run_in_arrow,
    run_task_set,
)
from roquet.spark.source.tasks import BrokerUnavailable


class NumberedTasks:
    """Tasks of which number 1 may raise an error."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self._count, self._error = count, error

    def __len__(self) -> int:
        return self._count

    def run(self, number: int) -> TaskResult:
        if number == 1 and self._error:
            raise self._error
        rows = {"orders": {"broker-a": {str(number): 7}}}
        return TaskResult(rows=rows, payload=f"task {number}")


def work(eager: MakeSpark, error: BaseException | None = None) -> list[TaskResult]:
    task_set: Any = NumberedTasks(3, error)
    return run_task_set(eager(), task_set)


def test_each_task_returns_its_result(eager: MakeSpark) -> None:
    assert [answer.rows["orders"]["broker-a"] for answer in work(eager)] == [
        {"0": 7},
        {"1": 7},
        {"2": 7},
    ]


def test_a_permanent_error_is_reported_unchanged(eager: MakeSpark) -> None:
    with pytest.raises(JobFailed, match=r"^queue 3 has no offset 5$"):
        work(eager, DataLost("queue 3 has no offset 5"))


def test_an_absent_broker_is_an_error_of_its_own(eager: MakeSpark) -> None:
    with pytest.raises(BrokerUnavailable, match="waited 60 s in vain"):
        work(eager, BrokerUnavailable("waited 60 s in vain"))


def test_a_transient_error_is_retried_by_spark_and_reported_at_the_end(eager: MakeSpark) -> None:
    with pytest.raises(JobFailed, match="the Spark job failed: no answer within 5 ms") as failed:
        work(eager, CallTimeout("no answer within 5 ms"))
    assert isinstance(failed.value.__cause__, RoquetError)


def fail_to_begin(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def begin(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(job_runner, "session", begin)


class Py4JError(Exception):
    """As py4j's own is called."""


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JError("org.apache.spark.sql.classic.SparkSession$ does not exist in the JVM"),
        Py4JError("An error occurred while calling o31.setCallSite"),
    ],
)
def test_a_jvm_that_ends_while_spark_starts_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_to_begin(monkeypatch, error)
    with pytest.raises(JobFailed, match=r"Spark's JVM has ended .*; start the job again"):
        job_runner.spark_for("archive", None)


@pytest.mark.parametrize(
    "error",
    [
        RoquetError("there is no Java: install one"),
        Py4JError("An error occurred while calling o31.put. Trace:\nno such method\n"),
    ],
)
def test_other_errors_while_spark_starts_are_raised_unchanged(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_to_begin(monkeypatch, error)
    with pytest.raises(type(error)) as raised:
        job_runner.spark_for("archive", None)
    assert raised.value is error


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "OSError"),
        ("the cable is out", "the cable is out"),
        (
            "An exception was thrown from the Python worker:\n"
            "Traceback (most recent call last):\n"
            '  File "fetch.py", line 7, in read\n'
            "roquet.model.errors.RecordError: 3 bytes too many\n\n"
            "\tat org.apache.spark.api.python.Reader.read(Reader.scala:1)\n"
            "\t... 3 more",
            "roquet.model.errors.RecordError: 3 bytes too many",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/other/bin/python": error=2, none such\n'
            "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n"
            "Caused by: java.io.IOException: error=2, none such\n"
            "\t... 28 more",
            'java.io.IOException: Cannot run program "/opt/other/bin/python": error=2, none such',
        ),
    ],
)
def test_the_cause_is_found_between_the_traces(text: str, cause: str) -> None:
    assert last_line(OSError(text)) == cause


class LogLevelRecorder:
    level: str | None = None

    @property
    def sparkContext(self) -> "LogLevelRecorder":  # noqa: N802 - Spark's name
        return self

    def setLogLevel(self, level: str) -> None:  # noqa: N802 - Spark's name
        self.level = level


@pytest.mark.parametrize(("master", "level"), [("local[2]", "ERROR"), ("spark://spark:7077", None)])
def test_warnings_of_a_cluster_are_logged(
    monkeypatch: pytest.MonkeyPatch, master: str, level: str | None
) -> None:
    spark = LogLevelRecorder()
    monkeypatch.setattr(job_runner, "session", lambda *_, **__: spark)
    job_runner.spark_for("orders", master)
    assert spark.level == level, "that no worker has a core free is a warning"


def test_a_stand_in_for_spark_has_no_cores(eager: MakeSpark) -> None:
    assert ready_cores(eager()) is None


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ConfigError("workers have Python 3.12"), ConfigError, "^workers have Python 3.12$"),
        (OSError("the cable is out"), JobFailed, "the Spark job failed: the cable is out"),
        (
            OSError("roquet.lake.objects.object_store.StorageFailed: the credentials have expired"),
            JobFailed,
            "the Spark job failed: the credentials have expired",
        ),
        (ImportError("No module named 'roquet'"), JobFailed, "workers have no roquet: pip install"),
    ],
)
def test_workers_are_checked_before_a_task_runs(
    eager: MakeSpark,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[Exception],
    text: str,
) -> None:
    def check(_: object) -> None:
        raise error

    monkeypatch.setattr(job_runner, "check_workers", check)
    spark, task_set = eager(), NumberedTasks(3)
    with pytest.raises(kind, match=text):
        run_task_set(spark, task_set)
    assert spark.jobs == 0


def test_a_server_of_spark_connect_provides_session_and_java(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in job_runner.PROVIDED_BY:
        monkeypatch.delenv(name, raising=False)
    assert is_session_provided("sc://spark:15002")
    assert not is_session_provided("spark://spark:7077")
    assert not is_session_provided(None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    assert is_session_provided(None)
    assert not is_session_provided("local[2]"), "whoever names a master gets that"


def results_of(error: Exception | None = None) -> list[TaskResult]:
    tasks = NumberedTasks(2, error)
    numbers: Any = iter([pa.RecordBatch.from_pydict({"id": [0, 1]})])
    texts = [batch["answer"][0].as_py() for batch in run_in_arrow(tasks, numbers)]
    return [msgspec.json.decode(text, type=TaskResult) for text in texts]


def test_each_number_gets_the_result_of_its_task() -> None:
    assert [result.payload for result in results_of()] == ["task 0", "task 1"]


def test_an_error_that_a_retry_would_meet_again_is_a_result() -> None:
    _, failed = results_of(ConfigError("no such column"))
    assert (failed.error, failed.is_retryable) == ("no such column", False)
    _, failed = results_of(BrokerUnavailable("no broker"))
    assert (failed.error, failed.is_retryable) == ("no broker", True)


@pytest.mark.parametrize("error", [CallTimeout("no answer"), StorageFailed("slow down")])
def test_a_failed_call_or_request_is_raised_so_that_spark_tries_again(error: Exception) -> None:
    with pytest.raises(type(error)):
        results_of(error)
