import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.dashboard.facts.group_rows import (
    WINDOW_MS,
    group_row,
    lag_by_topic,
    lag_trend,
    queue_rows,
    with_curve,
)
from roquet.dashboard.sampling.history import GroupHistory


def info(*lags: tuple[str, int]) -> GroupInfo:
    queues = [
        GroupQueueInfo(
            topic=topic, broker="broker-a", queue_id=0, owners=[], committed=0, end=lag, lag=lag,
            fault=None,
        )
        for topic, lag in lags
    ]  # fmt: skip
    return GroupInfo(
        name="billing", message_model=None, consume_type=None, lag=sum(lag for _, lag in lags),
        members=[], queues=queues, assignments=[], disabled_on=["broker-a"], problems=["x"],
    )  # fmt: skip


def test_a_group_without_a_sample_has_no_numbers() -> None:
    row = group_row("billing", None)
    assert (row.name, row.lag, row.members) == ("billing", None, None)


def test_rows_have_trends_and_curves() -> None:
    history = GroupHistory()
    history.add(info(("orders", 30)), 0)
    history.add(info(("orders", 20)), 10_000)
    row = with_curve(group_row("billing", info(("orders", 20))), history)
    assert (row.lag, row.disabled, row.problems) == (20, True, 1)
    assert row.trend is not None
    assert row.trend.caught_up_ms == 20_000
    assert row.spark is not None
    (queue,) = queue_rows(info(("orders", 10)), history, 20_000)
    assert queue.trend.caught_up_ms == 10_000
    assert queue.spark is not None


def test_a_queue_with_lag_now_is_not_called_caught_up() -> None:
    history = GroupHistory()
    for time_ms in (0, 10_000):
        history.add(info(("orders", 0)), time_ms)
    (queue,) = queue_rows(info(("orders", 7)), history, 11_000)
    assert queue.trend.text == "growing"


def test_queues_of_retries_stand_last() -> None:
    rows = queue_rows(info(("%RETRY%billing", 1), ("orders", 2)), GroupHistory(), 0)
    assert [row.queue.topic for row in rows] == ["orders", "%RETRY%billing"]


def test_the_topic_with_the_most_to_handle_is_first() -> None:
    found = lag_by_topic(info(("a", 1), ("b", 5), ("a", 2)).queues)
    assert list(found.items()) == [("b", 5), ("a", 3)]


TIMES = [0, 10_000, 20_000]


@pytest.mark.parametrize(
    ("lags", "per_s", "caught_up_ms", "text"),
    [
        ([], None, None, "not known yet"),
        ([5], None, None, "not known yet"),
        ([300, 200, 100], -10, 10_000, "shrinking"),
        ([100, 200, 300], 10, None, "growing"),
        ([7, 7, 7], 0, None, "steady"),
        ([20, 10, 0], -1, 0, "caught up"),
        ([200, -1, 100], -5, 20_000, "shrinking"),
        ([-1, -1, -1], None, None, "not known yet"),
        ([110, 100], -1, 100_000, "shrinking"),
    ],
)
def test_a_lag_has_a_direction_and_an_end(
    lags: list[int], per_s: float | None, caught_up_ms: int | None, text: str
) -> None:
    trend = lag_trend(TIMES, lags)
    assert trend.per_s == pytest.approx(per_s)
    assert (trend.caught_up_ms, trend.text) == (caught_up_ms, text)


def test_only_the_last_minutes_count() -> None:
    trend = lag_trend([0, WINDOW_MS * 2, WINDOW_MS * 2 + 1_000], [10**6, 100, 90])
    assert trend.per_s == pytest.approx(-10)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(-1, 2**40)), max_size=30))
def test_any_samples_have_a_trend(samples: list[tuple[int, int]]) -> None:
    times = sorted(time for time, _ in samples)
    trend = lag_trend(times, [lag for _, lag in samples])
    assert trend.caught_up_ms is None or trend.caught_up_ms >= 0
    assert trend.text
