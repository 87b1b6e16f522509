import jinja2
import pytest
from tests.dashboard.conftest import OpenSite

from roquet.dashboard.rendering import NAVIGATION, templates
from roquet.testing.clock import in_virtual_time


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


@in_virtual_time
async def test_a_page_is_json_for_a_program(open_site: OpenSite) -> None:
    async with open_site() as it:
        assert (await it.browser.facts("/topics"))["topics"]["rows"] == []
        both = await it.browser.get("/topics", accept="text/html, application/json")
        assert both.headers["content-type"].startswith("text/html")


@in_virtual_time
async def test_the_menu_marks_the_page(open_site: OpenSite) -> None:
    async with open_site() as it:
        html = await it.browser.text("/topics")
        assert '<a href="/topics" aria-current="page">Topics</a>' in html
        assert all(f'href="{path}"' in html for path in NAVIGATION)
