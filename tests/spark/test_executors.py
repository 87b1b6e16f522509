"""A session is asked for its cores, and workers with other versions are refused in a sentence."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from roquet.model.errors import ConfigError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark import executors
from roquet.spark.executors import (
    check_workers,
    is_connect,
    parallel_tasks,
    require_context,
    worker_fault,
)
from roquet.spark.versions import Versions, own_versions


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Sessions that no other test has asked."""
    yield
    executors.CHECKED_CORES.clear()
    executors.COUNTED_CORES.clear()


class Context:
    applicationId = "app-1"  # noqa: N815 - Spark's name

    def __init__(self, master: str, *cores: int) -> None:
        self.master, self._cores = master, [*cores]

    @property
    def defaultParallelism(self) -> int:  # noqa: N802
        return self._cores.pop(0) if len(self._cores) > 1 else self._cores[0]


class Driver:
    def __init__(self, master: str, *cores: int) -> None:
        self.sparkContext = Context(master, *cores)


class Server(Driver):
    session_id = "s-1"

    def __init__(self) -> None:
        self.counts = 0


Server.__module__ = "pyspark.sql.connect.session"


def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tasks of the checks that follow; none finds anything."""
    counts = list[int]()
    monkeypatch.setattr(executors, "check_versions", lambda _, count: counts.append(count))
    return counts


def test_the_cores_are_those_of_the_session(spark: SparkSession) -> None:
    assert parallel_tasks(spark) == 2
    assert parallel_tasks(any_session(Driver("spark://spark:7077", 16))) == 16


def test_a_stand_in_has_no_cores_and_no_workers() -> None:
    session = any_session(object())
    check_workers(session)
    assert parallel_tasks(session) is None


def test_workers_of_this_machine_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = checks(monkeypatch)
    check_workers(any_session(Driver("local[*,4]", 8)))
    assert counts == []


def test_workers_are_checked_until_no_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = checks(monkeypatch)
    check_workers(any_session(Driver("spark://spark:7077", 2, 6, 6)))
    assert counts == [2, 6]


def test_workers_that_came_later_are_checked_before_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = checks(monkeypatch)
    session = any_session(Driver("spark://spark:7077", 4))
    for _ in range(3):
        check_workers(session)
    assert counts == [4]
    check_workers(any_session(Driver("spark://spark:7077", 3)))
    assert counts == [4], "some have gone"
    check_workers(any_session(Driver("spark://spark:7077", 8)))
    assert counts == [4, 8]


def test_a_server_of_spark_connect_is_counted_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = checks(monkeypatch)
    monkeypatch.setattr(executors, "COUNT_MS", 10**9)
    executors.COUNTED_CORES["s-1"] = SYSTEM_CLOCK.monotonic_ms(), 12
    session = any_session(Server())
    assert is_connect(session)
    check_workers(session)
    check_workers(session)
    assert counts == [12]
    assert parallel_tasks(session) == 12


def test_what_needs_a_context_refuses_spark_connect(spark: SparkSession) -> None:
    require_context(spark, "the lab")
    with pytest.raises(ConfigError, match=r"^the lab watches .* unset SPARK_REMOTE"):
        require_context(any_session(Server()), "the lab")


@pytest.mark.spark_suite
def test_a_partition_of_a_range_is_a_core(spark: SparkSession) -> None:
    class Counted:
        """A session of Spark Connect, as far as a count goes."""

        session_id = "s-2"
        range = staticmethod(spark.range)

    Counted.__module__ = "pyspark.sql.connect.session"
    assert parallel_tasks(any_session(Counted())) == 2


@pytest.mark.spark_suite
def test_a_check_asks_each_worker_for_its_versions(spark: SparkSession) -> None:
    executors.check_versions(spark, 2)


@pytest.mark.spark_suite
def test_a_worker_with_other_packages_is_named_with_both_versions(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_versions()
    newer = Versions(python=own.python, roquet="9.9", pyspark="4.9.1", pyarrow=own.pyarrow)
    monkeypatch.setattr(executors, "own_versions", lambda: newer)
    text = rf"^Spark's workers do not fit this driver: .* has roquet {own.roquet} and not 9\.9, "
    with pytest.raises(ConfigError, match=text + rf"pyspark {own.pyspark} and not 4\.9\.1: inst"):
        executors.check_versions(spark, 2)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            "have Python 3.12, this driver has 3.11: PYSPARK_PYTHON",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/other/python": error=2, No such file',
            "have no Python at /opt/other/python: PYSPARK_PYTHON",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "have no pyarrow: pip install"),
        ("ModuleNotFoundError: No module named 'roquet.spark'", "have no roquet: pip install"),
    ],
)
def test_a_worker_without_what_it_needs_is_explained(error: str, text: str) -> None:
    fault = worker_fault(f"Job aborted\n{error}\n\tat java.lang.Thread.run")
    assert fault is not None
    assert text in fault


def test_other_errors_are_not_about_workers() -> None:
    assert worker_fault("No module named 'theirs'") is None
    assert worker_fault("FileNotFoundError: /lake") is None


def test_a_failed_check_is_explained_or_raised_unchanged(spark: SparkSession) -> None:
    class Failing:
        def __init__(self, error: Exception) -> None:
            self._error = error

        def range(self, *_: object) -> object:
            raise self._error

    with pytest.raises(ConfigError, match="have no roquet"):
        executors.check_versions(any_session(Failing(ImportError("No module named 'roquet'"))), 1)
    with pytest.raises(OSError, match="the cable"):
        executors.check_versions(any_session(Failing(OSError("the cable"))), 1)


def any_session(stand_in: object) -> Any:
    return stand_in
