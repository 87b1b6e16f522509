"""Every source queue maps to one destination queue, the same in every run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.queue_offsets import QueueKey
from roquet.model.errors import UsageError
from roquet.spark.jobs.send_plan import (
    destination_queue,
    map_queues,
    split_among_tasks,
    task_rates,
)

queue = st.tuples(st.sampled_from(["orders", "bills"]), st.sampled_from("abc"), st.integers(0, 8))
target = st.tuples(st.just("again"), st.sampled_from("abx"), st.integers(0, 4))


def test_a_queue_of_the_same_broker_and_number_is_the_one() -> None:
    queues = [("again", broker, number) for broker in "ab" for number in (0, 1)]
    queue_map = map_queues(
        [("orders", broker, number) for broker in "ab" for number in (0, 1)], queues
    )
    assert all(source[1:] == queue[1:] for source, queue in queue_map.items())


def test_neighbours_are_spread_over_all_queues() -> None:
    queues = [("again", "x", number) for number in range(4)]
    assert len({destination_queue(("orders", "a", number), queues) for number in range(4)}) == 4


@given(st.lists(target, min_size=1, unique=True), queue)
def test_the_order_of_the_queues_changes_nothing(queues: list[QueueKey], source: QueueKey) -> None:
    assert destination_queue(source, queues) == destination_queue(source, queues[::-1])


def test_a_topic_without_write_permission_is_an_error() -> None:
    with pytest.raises(UsageError, match="no queue that may be written to"):
        destination_queue(("orders", "a", 0), [])


@given(
    st.dictionaries(queue, st.integers(1, 1000), max_size=20),
    st.lists(target, min_size=1, unique=True),
    st.integers(1, 5),
)
def test_all_is_dealt_and_no_queue_has_two_senders(
    rows: dict[QueueKey, int], queues: list[QueueKey], tasks: int
) -> None:
    queue_map = map_queues(rows, queues)
    plans = split_among_tasks(rows, queue_map, tasks)
    assert sorted(source for plan in plans for source in plan) == sorted(rows)
    assert len(plans) <= tasks
    targets = [{queue_map[source] for source in plan} for plan in plans]
    assert sum(map(len, targets)) == len(set().union(*targets))


def test_tasks_have_about_the_same_to_do() -> None:
    rows = {("orders", "a", number): 10 for number in range(8)}
    plans = split_among_tasks(rows, {source: source for source in rows}, 4)
    assert [len(plan) for plan in plans] == [2, 2, 2, 2]


def test_a_rate_is_shared_out_by_rows() -> None:
    assert task_rates(100.0, [30, 10]) == [75.0, 25.0]
    assert task_rates(None, [1, 2]) == [None, None]
    assert all(share for share in task_rates(1.0, [0, 10**9])), "nobody waits for ever"
