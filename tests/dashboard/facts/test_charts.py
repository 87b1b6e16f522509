import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.dashboard.facts.charts import HEIGHT, TOP, WIDTH, chart, compact, time_ticks

NOON = 1_767_268_800_000
"""2026-01-01 12:00 UTC."""

TIMES = [NOON + 10_000 * n for n in range(4)]


def test_a_line_goes_from_the_left_to_the_right_and_up_to_a_round_value() -> None:
    drawn = chart(TIMES, {"lag": [0, 9, 18, 36]}, unit="number")
    assert drawn is not None
    assert [(tick.at, tick.text) for tick in drawn.y_ticks] == [
        (TOP + HEIGHT, "0"), (88.0, "10"), (61.0, "20"), (34.0, "30"), (TOP, "40"),
    ]  # fmt: skip
    (line,) = drawn.lines
    assert line.path == "M0 115.0L333 90.7L667 66.4L1000 17.8"
    assert line.area == "M0 115L0 115.0L333 90.7L667 66.4L1000 17.8L1000 115Z"
    assert (line.latest, line.most) == (36, 36)
    assert json.loads(drawn.points) == [[0, 0], [10, 9], [20, 18], [30, 36]]


def test_what_is_not_known_leaves_a_gap_in_its_own_line() -> None:
    drawn = chart(TIMES, {"in": [1.25, -1, 2, 4], "out": [3, 4]}, unit="rate")
    assert drawn is not None
    one, other = drawn.lines
    assert one.path == "M0 81.2L0 81.2M667 61.0L1000 7.0"
    assert other.path.startswith("M667 ")
    assert one.area == other.area == ""
    assert json.loads(drawn.points) == [[0, 1.25, None], [10, None, None], [20, 2, 3], [30, 4, 4]]


def test_samples_of_one_second_are_told_apart() -> None:
    drawn = chart([1_000, 1_400, 1_800], {"in": [1, 2, 3]}, unit="rate")
    assert drawn is not None
    assert json.loads(drawn.points) == [[0, 1], [0.4, 2], [0.8, 3]]


def test_a_pause_of_the_sampler_leaves_a_gap() -> None:
    times = [*TIMES, NOON + 600_000, NOON + 610_000]
    drawn = chart(times, {"lag": [1] * 6}, unit="number")
    assert drawn is not None
    assert drawn.lines[0].path.count("M") == 2


@pytest.mark.parametrize("values", [[], [1], [-1, -1, 5, -1]])
def test_fewer_than_two_values_are_no_chart(values: list[float]) -> None:
    assert chart(TIMES[: max(len(values), 2)], {"lag": values[:1]}, unit="number") is None
    assert chart(TIMES, {"lag": values}, unit="number") is None
    assert chart([NOON, NOON], {"lag": [1, 2]}, unit="number") is None


def test_without_any_lag_the_axis_ends_at_one() -> None:
    drawn = chart(TIMES, {"lag": [0] * 4}, unit="number")
    assert drawn is not None
    assert [tick.text for tick in drawn.y_ticks] == ["0", "1"]


@pytest.mark.parametrize(
    ("seconds", "texts"),
    [
        (30, ["12:00:10", "12:00:20"]),
        (600, ["12:02", "12:04", "12:06", "12:08"]),
        (3_600, ["12:10", "12:20", "12:30", "12:40", "12:50"]),
        (86_400, ["18:00", "00:00", "06:00"]),
        (4 * 86_400, ["01-02", "01-03", "01-04", "01-05"]),
    ],
)
def test_ticks_of_time_are_round(seconds: int, texts: list[str]) -> None:
    assert [tick.text for tick in time_ticks(NOON, NOON + seconds * 1_000)] == texts


def test_large_numbers_are_short() -> None:
    values = (0, 0.5, 50, 1_500, 20_000, 2e6, 1.25e9, 3e12)
    shown = ["0", "0.5", "50", "1.5 k", "20 k", "2 M", "1.25 G", "3 T"]
    assert [compact(value) for value in values] == shown


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.floats(-1, 1e12)), min_size=2, max_size=60),
    st.sampled_from(["rate", "number"]),
)
def test_any_values_stay_in_the_box(steps: list[tuple[int, float]], unit: str) -> None:
    times, now = [], NOON
    for step, _ in steps:
        now += step
        times.append(now)
    drawn = chart(times, {"x": [value for _, value in steps]}, unit=unit)  # type: ignore[arg-type]
    if drawn is not None:
        points = re.findall(r"([\d.]+) ([\d.]+)", drawn.lines[0].path)
        assert points
        assert all(0 <= float(x) <= WIDTH for x, _ in points)
        assert all(TOP <= float(y) <= TOP + HEIGHT for _, y in points)
        assert 2 <= len(drawn.y_ticks) <= 6
        assert len(drawn.x_ticks) <= 7
        assert len({tick.text for tick in drawn.y_ticks}) == len(drawn.y_ticks)
