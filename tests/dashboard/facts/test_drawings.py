import re

from hypothesis import given
from hypothesis import strategies as st

from roquet.dashboard.facts.charts import time_ticks
from roquet.dashboard.facts.drawings import POINTS_MAX, ROWS_MAX, curve, owner_picture
from roquet.dashboard.sampling.history import OwnerSpan
from roquet.model.queue import MessageQueue


def span(queue_id: int, owner: str, start_ms: int, end_ms: int) -> OwnerSpan:
    queue = MessageQueue("orders", "broker-a", queue_id)
    return OwnerSpan(queue=queue, owner=owner, start_ms=start_ms, end_ms=end_ms)


def test_a_curve_goes_from_the_left_to_the_right_and_up_to_its_highest_value() -> None:
    drawn = curve([0, 10, 5], width=100, height=22)
    assert drawn is not None
    assert drawn.line == "M0.0 21.0L50.0 1.0L100.0 11.0"
    assert drawn.area.endswith("L100 22L0 22Z")


def test_too_few_values_are_no_curve() -> None:
    assert curve([5], width=100, height=20) is None
    assert curve([-1, 5, -1], width=100, height=20) is None


@given(st.lists(st.integers(-1, 10**12), max_size=500))
def test_any_values_stay_in_the_box(values: list[int]) -> None:
    drawn = curve(values, width=90, height=18)
    if drawn is not None:
        points = re.findall(r"([\d.]+) ([\d.]+)", drawn.line)
        assert len(points) <= POINTS_MAX
        assert all(0 <= float(x) <= 90.1 and 0 <= float(y) <= 18 for x, y in points)


def test_each_owner_has_a_colour_and_nobody_has_none() -> None:
    drawn = owner_picture([span(0, "a", 0, 50), span(0, "", 50, 60), span(1, "b", 0, 60)])
    assert drawn is not None
    assert drawn.ticks == time_ticks(0, 60)
    assert drawn.legend == [("a", "c0"), ("b", "c1")]
    assert [bar.colour for bar in drawn.bars] == ["c0", "c-none", "c1"]
    assert [row.name for row in drawn.rows] == ["orders broker-a:0", "orders broker-a:1"]
    assert drawn.bars[0].x < drawn.bars[1].x
    assert drawn.bars[1].title == "orders broker-a:0: nobody"


def test_queues_of_retries_stand_last() -> None:
    queue = MessageQueue("%RETRY%billing", "broker-a", 0)
    retry = OwnerSpan(queue=queue, owner="a", start_ms=0, end_ms=60)
    drawn = owner_picture([retry, span(0, "a", 0, 60)])
    assert drawn is not None
    names = ["orders broker-a:0", "%RETRY%billing broker-a:0"]
    assert [row.name for row in drawn.rows] == names
    assert [bar.y for bar in drawn.bars] == [18, 2]


def test_more_queues_than_fit_are_counted() -> None:
    drawn = owner_picture([span(number, "a", 0, 9) for number in range(ROWS_MAX + 3)])
    assert drawn is not None
    assert (len(drawn.rows), drawn.left_out) == (ROWS_MAX, 3)


def test_nothing_is_drawn_before_the_second_sample() -> None:
    assert owner_picture([]) is None
    assert owner_picture([span(0, "a", 5, 5)]) is None
