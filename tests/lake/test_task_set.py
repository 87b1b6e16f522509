"""Results of tasks are added up."""

from roquet.lake.task_set import TaskResult, rows_by_queue


def test_rows_of_all_tasks_are_added_up_by_queue() -> None:
    results = [
        TaskResult(rows={"orders": {"a": {"0": 2, "1": 3}}}),
        TaskResult(rows={"orders": {"a": {"1": 4}}}),
    ]
    assert rows_by_queue(results) == {("orders", "a", 0): 2, ("orders", "a", 1): 7}
