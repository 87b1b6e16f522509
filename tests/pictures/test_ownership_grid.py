"""Ownership grid: cells in the colours of their owners."""

import re
from xml.etree import ElementTree as ET

import pytest

from roquet.pictures.ownership_grid import (
    OwnershipGrid,
    OwnershipRow,
    ownership_grid,
    standalone_svg,
)
from roquet.pictures.page import STYLE

SVG = "{http://www.w3.org/2000/svg}"


def picture(columns: int = 3, owners: int = 2) -> OwnershipGrid:
    return OwnershipGrid(
        rows=[
            OwnershipRow(name="AVG", owners=[0, 1, None][:columns]),
            OwnershipRow(owners=[0, 0, 1][:columns], marked=[False, True, False], note="2 moved"),
            OwnershipRow(name="<b>", owners=[n % owners for n in range(columns)]),
        ],
        columns=[str(n) for n in range(columns)],
        owners=[f"c{n}" for n in range(owners)],
    )


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_row_has_its_name_its_owners_and_its_note() -> None:
    drawn = texts(ownership_grid(picture()))
    assert drawn[:3] == ["0", "1", "2"], "the columns"
    assert drawn[3:7] == ["AVG", "1", "2", "-"]
    assert drawn[7:11] == ["1", "1", "2", "2 moved"]


def test_a_cell_has_the_colour_of_its_owner_and_a_ring_when_it_is_marked() -> None:
    svg = ownership_grid(picture())
    fills = [e.get("fill") for e in ET.fromstring(svg).iter(f"{SVG}rect")]
    assert fills[:6] == ["var(--c0)", "var(--c1)", "none", "var(--c0)", "var(--c0)", "var(--c1)"]
    assert svg.count('stroke="var(--ink)"') == 1
    assert svg.count('stroke="var(--bad)"') == 1, "nobody's"


def test_the_legend_names_every_owner() -> None:
    assert texts(ownership_grid(picture(owners=30)))[-1] == "c29"
    assert {"c0", "c1"} <= set(texts(ownership_grid(picture())))


def test_many_cells_are_narrow_and_have_no_numbers() -> None:
    svg = ownership_grid(picture(columns=200))
    assert "7" not in texts(svg)
    edges = [float(e.get("x", 0)) + float(e.get("width", 0)) for e in ET.fromstring(svg).iter()]
    assert max(edges) <= 760


@pytest.mark.parametrize("draw", [ownership_grid, standalone_svg])
def test_every_colour_is_one_that_the_page_defines(draw: type) -> None:
    used = set(re.findall(r"var\((--\w+)\)", draw(picture())))
    assert used <= set(re.findall(r"(--\w+):", STYLE))


def test_a_file_of_its_own_needs_nothing_else() -> None:
    svg = standalone_svg(picture())
    root = ET.fromstring(svg)
    assert root.get("viewBox", "").startswith("-10 -10 780 ")
    assert set(re.findall(r"var\((--\w+)\)", svg)) <= set(re.findall(r"(--\w+):", svg))
    assert not re.search(r"(src|href)=|<script|url\(|@import", svg)


def test_names_cannot_become_markup() -> None:
    assert "<b>" not in ownership_grid(picture())
    assert "<b>" in texts(ownership_grid(picture()))


def test_without_rows_the_picture_is_empty() -> None:
    assert texts(ownership_grid(OwnershipGrid(rows=[], columns=[], owners=[]))) == []
