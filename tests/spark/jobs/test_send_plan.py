"""Every source queue maps to one destination queue, the same in every run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.conftest import PausedClock

from roquet.lake.queue_offsets import QueueKey
from roquet.model.errors import UsageError
from roquet.spark.jobs.send_plan import (
    RowRateLimit,
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


@pytest.mark.parametrize(("rate", "count"), [(100.0, 10), (3.0, 1), (5000.0, 500)])
def test_messages_are_paced_at_the_rate(rate: float, count: int) -> None:
    time = PausedClock()
    rate_limit = RowRateLimit(rate, time.pause, time.monotonic_ms)
    for _ in range(50):
        rate_limit.wait(count)
    assert time.ms - 1_000_000 == pytest.approx(49 * count * 1000 / rate, rel=0.02)


def test_time_lost_in_a_stop_is_not_made_up_for() -> None:
    time = PausedClock()
    rate_limit = RowRateLimit(10.0, time.pause, time.monotonic_ms)
    rate_limit.wait(1)
    time.ms += 60_000
    for _ in range(11):
        rate_limit.wait(1)
    assert time.ms == 1_000_000 + 60_000 + 1_000


def test_without_a_rate_nothing_waits() -> None:
    time = PausedClock()
    rate_limit = RowRateLimit(None, time.pause, time.monotonic_ms)
    rate_limit.wait(10**9)
    assert (time.pauses, rate_limit.step) == ([], None)


@pytest.mark.parametrize(("rate", "step"), [(0.5, 1), (10.0, 1), (1000.0, 100)])
def test_a_second_has_ten_steps_at_most(rate: float, step: int) -> None:
    assert RowRateLimit(rate, lambda _: None).step == step
