import jinja2
import pytest
from tests.dashboard.conftest import open_site

from roquet.dashboard import rendering as filters
from roquet.dashboard.rendering import NAVIGATION, templates
from roquet.model.printable_text import printable

pytestmark = pytest.mark.virtual_time


def test_templates_escape_text_and_refuse_missing_facts() -> None:
    shown = templates().from_string("{{ text }}")
    assert shown.render(text="<script>'\"") == "&lt;script&gt;&#39;&#34;"
    with pytest.raises(jinja2.UndefinedError):
        shown.render()


def test_every_template_can_be_read() -> None:
    for name in templates().list_templates():
        source = templates().get_template(name)
        assert source is not None


def test_templates_have_no_script_style_or_handler_of_their_own() -> None:
    for name in templates().list_templates():
        text = (templates().loader or jinja2.DictLoader({})).get_source(templates(), name)[0]
        for forbidden in ("style=", "<style", " onclick", " onload", "javascript:", "| safe"):
            assert forbidden not in text, (name, forbidden)
        assert text.count("<script") == text.count("<script src=")


async def test_a_page_is_json_for_a_program() -> None:
    async with open_site() as it:
        assert (await it.browser.facts("/topics"))["topics"]["rows"] == []
        both = await it.browser.get("/topics", accept="text/html, application/json")
        assert both.headers["content-type"].startswith("text/html")


async def test_the_menu_marks_the_page() -> None:
    async with open_site() as it:
        html = await it.browser.text("/topics")
        assert '<a href="/topics" aria-current="page">Topics</a>' in html
        assert all(f'href="{path}"' in html for path in NAVIGATION)


def test_what_is_not_known_is_a_dash() -> None:
    shown = [filters.number, filters.size, filters.rate, filters.duration, filters.time,
             filters.percent]  # fmt: skip
    assert {show(None) for show in shown} == {filters.DASH}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (20 * 1024**2, "20 MB"), (2**60, "1024.0 PB")],
)
def test_sizes_have_a_unit_that_fits(value: int, text: str) -> None:
    assert filters.size(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (59_000, "59 s"),
        (61_000, "1 min 1 s"),
        (601_000, "10 min"),
        (3_600_000, "1 h"),
        (3_720_000, "1 h 2 min"),
        (86_400_000, "1 d"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(ms: int, text: str) -> None:
    assert filters.duration(ms) == text


def test_small_rates_have_a_digit_more() -> None:
    assert [filters.rate(value) for value in (0, 0.25, 9.94, 1234.5)] == [
        "0/s", "0.2/s", "9.9/s", "1,234/s",
    ]  # fmt: skip


def test_times_are_utc_and_odd_ones_are_not_known() -> None:
    assert filters.time(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert filters.time(2**63) == filters.time(-1) == filters.time(0) == filters.DASH


def test_a_clients_version_is_its_release_where_that_is_known() -> None:
    assert (filters.release(513), filters.release(7)) == ("5.5.0", "version 7")


def test_numbers_and_names() -> None:
    assert (filters.number(1234567), filters.percent(0.756)) == ("1,234,567", "76 %")
    assert filters.segment("a/b c%\ud800") == "a%2Fb%20c%25%3F"


@pytest.mark.parametrize(
    ("client_id", "parts"),
    [
        ("10.0.0.5@billing-1", ("10.0.0.5@billing-1", "", "")),
        ("10.0.0.5@4711#1700000000042000003", ("10.0.0.5@4711#", "170000000004200", "0003")),
        ("a-host-of-a-very-long-name@4711#17", ("a-host-of-a-very-l", "ong-name@471", "1#17")),
        ("\x1b" * 10, ("\\x1b\\x1b\\x1b\\x1b\\x", "1b\\x1b\\x1b\\x1b\\x1b", "\\x1b")),
    ],
)
def test_a_client_id_is_cut_to_its_telling_parts(
    client_id: str, parts: tuple[str, str, str]
) -> None:
    found = filters.member_parts(client_id)
    assert "".join(found) == printable(client_id)
    assert found == parts
