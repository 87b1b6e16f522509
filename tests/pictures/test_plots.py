import re
from xml.etree import ElementTree as ET

import pytest

from roquet.pictures import plots
from roquet.pictures.page import STYLE
from roquet.pictures.plots import OwnershipSpan, PlotEvent, PlotSeries

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter(f"{SVG}text")]


def rates() -> str:
    x = [0.0, 1.0, 2.0]
    return plots.line_plot(
        [PlotSeries(name="sent", x=x, y=[5, 9, 4])],
        stacked=[PlotSeries(name=f"consumer-{n}", x=x, y=[2, n, 1]) for n in (1, 2)],
        x="seconds",
        y="messages a second",
        moments=[PlotEvent(1, "one is killed")],
    )


def owned() -> str:
    spans = [
        OwnershipSpan(row="broker-a:0", start=0, end=5, owner=0),
        OwnershipSpan(row="broker-a:0", start=5, end=9, owner=1),
        OwnershipSpan(row="broker-a:1", start=0, end=9, owner=1),
    ]
    return plots.ownership_timeline(spans, ["consumer-1", "consumer-2"], x="seconds")


def shaded() -> str:
    return plots.heatmap({("AA", 5): 10, ("UA", 6): 40, ("UA", 7): 0}, x="hour", y="carrier")


def test_curves_name_their_axes_their_series_and_their_moments() -> None:
    assert {"seconds", "messages a second", "sent", "consumer-1", "one is killed"} <= set(
        texts(rates())
    )


def test_ownership_has_a_row_for_each_thing_and_a_colour_for_each_owner() -> None:
    svg = owned()
    assert {"broker-a:0", "broker-a:1", "consumer-1", "consumer-2"} <= set(texts(svg))
    assert {"var(--c0)", "var(--c1)"} <= set(re.findall(r"fill: (var\(--c\d\))", svg))


def test_owners_may_have_other_colours_than_other_pictures_of_the_page() -> None:
    spans = [OwnershipSpan(row="a", start=0, end=1, owner=n) for n in range(2)]
    svg = plots.ownership_timeline(spans, ["one", "two"], x="seconds", first_colour=7)
    assert {"var(--c7)", "var(--c0)"} == set(re.findall(r"fill: (var\(--c\d\))", svg))


def test_the_fullest_cell_is_full_and_the_others_are_paler() -> None:
    svg = shaded()
    assert svg.count("fill: var(--c0)") == 2, "nothing is drawn for nothing"
    assert re.findall(r"fill-opacity: ([\d.]+)", svg) == ["0.5"]


@pytest.mark.parametrize("picture", [rates, owned, shaded])
def test_every_colour_is_one_that_the_page_defines(picture: type) -> None:
    svg = picture()
    assert not re.search(r"#[0-9a-f]{6}\b(?!\")", svg)
    assert set(re.findall(r"var\((--\w+)\)", svg)) <= set(re.findall(r"(--\w+):", STYLE))


@pytest.mark.parametrize("picture", [rates, owned, shaded])
def test_a_picture_is_only_an_svg_in_the_pages_own_font(picture: type) -> None:
    svg = picture()
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert "metadata" not in svg
    assert "DejaVu" not in svg


def test_the_same_values_give_the_same_picture() -> None:
    assert rates() == rates()


def test_without_values_the_picture_is_empty() -> None:
    assert plots.heatmap({}, x="hour", y="carrier").startswith("<svg")
    assert plots.line_plot([], x="s", y="n").startswith("<svg")


def test_names_are_text_whatever_is_in_them() -> None:
    names = ["_group", "a $x$ <b>\x1b\u202e", "n" * 50]
    svg = plots.line_plot(
        [PlotSeries(name=name, x=[0, 1], y=[0, n]) for n, name in enumerate(names)],
        x="s", y="n", moments=[PlotEvent(1, "$\\frac$")],
    )  # fmt: skip
    texts_shown = {text.strip() for text in texts(svg)}
    assert {"_group", r"a $x$ <b>\x1b\u202e", "$\\frac$"} <= texts_shown
    assert f"{'n' * 22}…{'n' * 22}" in texts_shown
