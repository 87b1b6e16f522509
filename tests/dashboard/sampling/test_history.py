from hypothesis import given
from hypothesis import strategies as st

from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.dashboard.sampling.history import (
    HISTORY_MS,
    QUEUES_MAX,
    SAMPLES_MAX,
    SPANS_MAX,
    UNKNOWN,
    ClusterHistory,
    ClusterTotals,
    GroupHistory,
    growth,
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


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    history = GroupHistory()
    for now_ms in range(0, 2 * HISTORY_MS, 45_000):
        history.add(group({0: 1}, ["a"]), now_ms)
    assert history.times[-1] - history.times[0] == HISTORY_MS
    assert len(history.lags) == len(history.letters) == len(history.times) == 81
    assert len(history.queue_lags(queue(0))) == 81


def test_the_growth_of_a_count_begins_at_its_first_known_value() -> None:
    assert growth([UNKNOWN, 3, 5, UNKNOWN, 9]) == 6
    assert growth([9, 2]) == growth([UNKNOWN]) == growth([]) == 0


def totals(in_per_s: float | None) -> ClusterTotals:
    return ClusterTotals(in_per_s=in_per_s, out_per_s=None, lag=4)


def test_totals_and_rates_of_topics_end_at_the_same_time() -> None:
    history = ClusterHistory()
    history.add(10, totals(5), {"orders": None})
    history.add(20, totals(None), {"orders": 2, "clicks": 7})
    history.add(30, totals(6), {"clicks": 8})
    assert list(history.times) == [10, 20, 30]
    assert list(history.ins) == [5, UNKNOWN, 6]
    assert list(history.topic_rates("orders")) == [UNKNOWN, 2, UNKNOWN]
    assert list(history.topic_rates("clicks")) == [7, 8]
    history.forget_topics(["clicks"])
    assert list(history.topic_rates("orders")) == []
    history.shift(-7)
    assert list(history.times) == [3, 13, 23]


def test_totals_and_rates_of_topics_are_bounded() -> None:
    history = ClusterHistory()
    for number in range(SAMPLES_MAX + 5):
        history.add(number, totals(number), {"orders": number})
    assert len(history.times) == len(history.outs) == SAMPLES_MAX
    assert len(history.topic_rates("orders")) == SAMPLES_MAX
