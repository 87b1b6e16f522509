import re
from xml.etree import ElementTree as ET

from roquet.pictures.page import STYLE, Cell, Section, page, table


def test_a_page_needs_nothing_else() -> None:
    text = page("Demo", Cell("all is well", True), [Section(title="One", content="<svg></svg>")])
    assert not re.search(r"(src|href)=|<script|url\(|@import", text)
    assert text.startswith("<!doctype html>")


def test_every_colour_has_a_light_and_a_dark_value() -> None:
    names = re.findall(r"(--\w+):", STYLE)
    assert sorted(names) == sorted(2 * list(dict.fromkeys(names)))
    assert set(re.findall(r"var\((--\w+)\)", STYLE)) <= set(names)


def test_text_of_users_cannot_become_html() -> None:
    text = page("<b>", Cell("a & b"), [Section(title="<i>", text="<script>")])
    assert "<script>" not in text
    assert "&lt;b&gt;" in text
    assert "a &amp; b" in text


def test_a_verdict_is_good_bad_or_neither() -> None:
    assert '<p class="good">yes</p>' in page("t", Cell("yes", True), [])
    assert '<p class="bad">no</p>' in page("t", Cell("no", False), [])
    assert "<p>so</p>" in page("t", Cell("so"), [])


def test_a_table_aligns_numbers_right_and_marks_failures() -> None:
    root = ET.fromstring(table(["what", "n"], [["rows", 336776], ["lost", Cell(3, False)]]))
    cells = [(cell.text, cell.get("class")) for cell in root.iter("td")]
    assert cells == [("rows", None), ("336,776", "number"), ("lost", None), ("3", "number bad")]


def test_a_picture_scrolls_in_a_narrow_window_and_keeps_its_size() -> None:
    text = page("t", Cell("so"), [Section(title="One", content="<svg></svg>")])
    assert '<div class="wide"><svg></svg></div>' in text
    assert "@media (max-width: 40rem) { div.wide svg { width: 40rem; } }" in STYLE


def test_a_date_in_the_verdict_is_not_broken() -> None:
    text = page("t", Cell("from 2026-11-25 22:28 UTC on"), [])
    assert 'from <span class="whole">2026-11-25 22:28 UTC</span> on' in text
