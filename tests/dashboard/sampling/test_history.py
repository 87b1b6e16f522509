from hypothesis import given
from hypothesis import strategies as st

from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.dashboard.sampling.history import (
    QUEUES_MAX,
    SAMPLES_MAX,
    SPANS_MAX,
    UNKNOWN,
    GroupHistory,
)
from roquet.model.queue import MessageQueue


def group(lags: dict[int, int], owners: list[str] | None = None) -> GroupInfo:
    queues = [
        GroupQueueInfo(
            topic="orders", broker="broker-a", queue_id=number, owners=owners, committed=0,
            end=lag, lag=lag, fault=None,
        )
        for number, lag in lags.items()
    ]  # fmt: skip
    return GroupInfo(
        name="billing", message_model=None, consume_type=None, lag=sum(lags.values()), members=[],
        queues=queues, assignments=[], problems=[],
    )  # fmt: skip


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


def test_queues_that_come_later_have_shorter_histories() -> None:
    history = GroupHistory()
    history.add(group({0: 5}), 10)
    history.add(group({0: 4, 1: 9}), 20)
    history.add(group({1: 8}), 30)
    assert list(history.times) == [10, 20, 30]
    assert list(history.lags) == [5, 13, 8]
    assert list(history.queue_lags(queue(0))) == [5, 4, UNKNOWN]
    assert list(history.queue_lags(queue(1))) == [9, 8]
    assert list(history.queue_lags(queue(2))) == []


def test_a_change_of_owner_ends_a_span_and_begins_another() -> None:
    history = GroupHistory()
    for now_ms, owners in ((10, ["a"]), (20, ["a"]), (30, ["b"]), (40, [])):
        history.add(group({0: 0}, owners), now_ms)
    spans = [(span.owner, span.start_ms, span.end_ms) for span in history.spans]
    assert spans == [("a", 10, 30), ("b", 30, 40), ("", 40, 40)]


def test_a_group_keeps_an_hour_and_forgets_queues_that_are_gone() -> None:
    history = GroupHistory()
    history.add(group({0: 1, 1: 1}, ["a"]), 0)
    for number in range(1, SAMPLES_MAX + 2):
        history.add(group({1: number}, ["b" if number % 2 else "c"]), number)
    assert len(history.times) == len(history.lags) == SAMPLES_MAX
    assert len(history.queue_lags(queue(1))) == SAMPLES_MAX
    assert len(history.queue_lags(queue(0))) == 0
    assert {span.queue for span in history.spans} == {queue(1)}


def test_spans_are_bounded() -> None:
    history = GroupHistory()
    for now_ms in range(40):
        history.add(group(dict.fromkeys(range(100), 0), [str(now_ms)]), now_ms)
    assert len(history.spans) <= SPANS_MAX


def test_of_a_very_large_group_only_the_sum_is_kept() -> None:
    history = GroupHistory()
    history.add(group(dict.fromkeys(range(QUEUES_MAX + 1), 1), ["a"]), 10)
    assert list(history.lags) == [QUEUES_MAX + 1]
    assert history.spans == []


@given(st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 9)), max_size=12))
def test_the_newest_lag_of_each_queue_is_the_last_of_its_history(
    samples: list[dict[int, int]],
) -> None:
    history = GroupHistory()
    for now_ms, lags in enumerate(samples):
        history.add(group(lags), now_ms)
    for number, lag in (samples[-1] if samples else {}).items():
        assert history.queue_lags(queue(number))[-1] == lag
