"""The comparison as a page and as a picture."""

import re
from xml.etree import ElementTree as ET

import pytest

from roquet.cli.balance.compare import compare, strategy_names
from roquet.cli.balance.report import html, svg
from roquet.cli.balance.situation import MemberChange, Situation, build_situation


def situation_of(then: MemberChange | None) -> Situation:
    lag = "1,2,3,4,5,6,7,8" if then is MemberChange.KILL else ""
    return build_situation(lag=lag, then=then)


@pytest.mark.parametrize("then", [None, *MemberChange])
def test_a_page_has_a_picture_and_the_numbers(then: MemberChange | None) -> None:
    text = html(
        situation_of(then), compare(situation_of(then), strategy_names("all")), ["AVG moves 5."]
    )
    assert text.startswith("<!doctype html>")
    assert "AVG moves 5." in text
    assert text.count("<svg") == 1
    assert ("<th>moves</th>" in text) == (then is not None)
    assert ("<th>most waiting</th>" in text) == (then is MemberChange.KILL)
    assert not re.search(r"(src|href)=|<script|url\(|@import", text)


def test_a_picture_shows_before_and_after_and_rings_moved_queues() -> None:
    picture = svg(
        situation_of(MemberChange.JOIN), compare(situation_of(MemberChange.JOIN), ["AVG"])
    )
    ET.fromstring(picture)
    assert picture.count('stroke="var(--ink)"') == 5
    assert "2 each · 5 moved" in picture


def test_without_a_change_there_is_one_row() -> None:
    picture = svg(situation_of(None), compare(situation_of(None), ["AVG"]))
    assert "2 to 3" in picture
    assert "moved" not in picture
