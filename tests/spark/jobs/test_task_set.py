"""A task set runs by number in Spark's workers, and its results come back as JSON."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from roquet.model.errors import CallTimeout, ConfigError
from roquet.spark.jobs.task_set import TaskResult, rows_by_queue, run_in_arrow
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.spark.tables.object_store import StorageFailed


class NumberedTasks:
    """Two tasks; `error` is raised by the second one."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def __len__(self) -> int:
        return 2

    def run(self, number: int) -> TaskResult:
        if number and self._error is not None:
            raise self._error
        return TaskResult(payload=f"task {number}")


def results_of(tasks: NumberedTasks) -> list[TaskResult]:
    numbers: Any = iter([pa.RecordBatch.from_pydict({"id": [0, 1]})])
    texts = [batch["answer"][0].as_py() for batch in run_in_arrow(tasks, numbers)]
    return [msgspec.json.decode(text, type=TaskResult) for text in texts]


def test_each_number_gets_the_result_of_its_task() -> None:
    assert [result.payload for result in results_of(NumberedTasks())] == ["task 0", "task 1"]


def test_an_error_that_a_retry_would_meet_again_is_a_result() -> None:
    _, failed = results_of(NumberedTasks(ConfigError("no such column")))
    assert (failed.error, failed.is_retryable) == ("no such column", False)
    _, failed = results_of(NumberedTasks(BrokerUnavailable("no broker")))
    assert (failed.error, failed.is_retryable) == ("no broker", True)


@pytest.mark.parametrize("error", [CallTimeout("no answer"), StorageFailed("slow down")])
def test_a_failed_call_or_request_is_raised_so_that_spark_tries_again(error: Exception) -> None:
    with pytest.raises(type(error)):
        results_of(NumberedTasks(error))


def test_rows_of_all_tasks_are_added_up_by_queue() -> None:
    results = [
        TaskResult(rows={"orders": {"a": {"0": 2, "1": 3}}}),
        TaskResult(rows={"orders": {"a": {"1": 4}}}),
    ]
    assert rows_by_queue(results) == {("orders", "a", 0): 2, ("orders", "a", 1): 7}
