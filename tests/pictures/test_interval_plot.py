"""Interval plot: a bar, a dot and its margin for each row."""

import re
from xml.etree import ElementTree as ET

import pytest

from roquet.pictures.interval_plot import IntervalRow, interval_plot
from roquet.pictures.page import STYLE

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    IntervalRow(name="AVG", low=1, mean=2, high=4, margin=0.5, note="2.0 ± 0.5"),
    IntervalRow(name="<b>", low=0, mean=0, high=0, owner=9),
]


def parts(svg: str, kind: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(f"{SVG}{kind}"))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parts(svg, "text")]


def test_a_row_has_its_name_its_note_and_an_axis_that_is_named() -> None:
    picture = interval_plot(ROWS, x="seconds")
    for text in ("AVG", "<b>", "2.0 ± 0.5", "seconds", "0", "4"):
        assert text in texts(picture)


def test_the_mean_lies_between_the_ends_of_its_interval_and_those_within_the_bar() -> None:
    picture = interval_plot(ROWS[:1], x="s")
    (bar,), (dot,) = parts(picture, "rect"), parts(picture, "circle")
    left, right = sorted(
        float(line.get("x1", 0)) for line in parts(picture, "line") if line.get("stroke-width")
    )
    start, width = float(bar.get("x", 0)), float(bar.get("width", 0))
    assert start < left < float(dot.get("cx", 0)) < right < start + width


def test_an_interval_beyond_the_picture_ends_in_an_arrow() -> None:
    picture = interval_plot([IntervalRow(name="far", low=1, mean=90, high=99)], x="s", most=10)
    assert ">" in texts(picture)
    assert not parts(picture, "circle")


@pytest.mark.parametrize("most", [0.0003, 0.07, 0.9, 1, 3, 47, 1_000, 123_456_789])
def test_an_axis_has_a_few_round_numbers_and_holds_everything(most: float) -> None:
    picture = interval_plot([IntervalRow(name="a", low=0, mean=most / 2, high=most)], x="")
    ticks = [float(t.replace(",", "")) for t in texts(picture) if re.fullmatch(r"[\d.,e-]+", t)]
    assert 2 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-1] >= most * 0.999


def test_without_rows_the_picture_is_empty() -> None:
    ET.fromstring(interval_plot([], x="s"))
    assert parts(interval_plot(ROWS[1:], x="s"), "circle")


def test_colours_are_those_of_the_page() -> None:
    for name in set(re.findall(r"var\((--\w+)\)", interval_plot(ROWS, x="s"))):
        assert f"{name}:" in STYLE
