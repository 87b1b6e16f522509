"""Pages of things that do not exist, and of names that nothing can have."""

from itertools import product

import pytest
from tests.dashboard.conftest import JSON, Site

from roquet.admin import groups

pytestmark = pytest.mark.virtual_time

NAMED = {
    "/topics/{}": "/topics",
    "/topics/{}/update?permission=R": "/topics",
    "/topics/{}/resize?queues=2": "/topics",
    "/topics/{}/delete": "/topics",
    "/groups/{}": "/groups",
    "/groups/{}/reset?topic=TBW102&to=first": "/groups",
    "/groups/{}/delete": "/groups",
    "/brokers/{}": "/brokers",
    "/brokers/{}/setting?key=brokerName&value=x": "/brokers",
    "/dead-letters/{}": "/dead-letters",
    "/dead-letters/{}/export": "/dead-letters",
    "/messages/new?topic={}": "/messages",
    "/messages/tail?topic={}": "/messages",
    "/messages/one?topic={}&broker=broker-a&queue=0&offset=0": "/messages",
    "/messages/body?topic={}&broker=broker-a&queue=0&offset=0": "/messages",
}
"""Addresses with a name, and the list that the page of an unknown name links to."""

IN_PATHS = [path for path in NAMED if "/{}" in path]

HOSTILE = [
    *("%00", "%FF", "%ED%A0%80", "%0A", "a%20b", "x" * 999, "..%2F..%2Fetc", "%25n%25s"),
    *("%E2%80%AE", "%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
]


async def test_a_thing_that_does_not_exist_is_not_found(site: Site) -> None:
    for path, listed in NAMED.items():
        missing = await site.browser.get(path.format("nobody"))
        assert missing.status_code == 404, path
        assert "nobody" in missing.text
        assert f'<p><a href="{listed}">' in missing.text
        assert 'class="problem"' not in missing.text
        facts = await site.browser.get(path.format("nobody"), **JSON)
        assert facts.status_code == 404
        assert "nobody" in facts.json()["error"]


async def test_a_name_that_nothing_can_have_is_not_found(site: Site) -> None:
    for path, name in product(IN_PATHS, HOSTILE):
        missing = await site.browser.get(path.format(name))
        assert missing.status_code == 404, (path, name)
        assert "<script>alert" not in missing.text
        assert "<h1>Not found</h1>" in missing.text


CHANGES = {
    "/topics/nobody/update": {"permission": "R"},
    "/topics/nobody/resize": {"queues": "2"},
    "/topics/nobody/delete": {"typed_name": "nobody"},
    "/groups/nobody/update": {"retries": "3"},
    "/groups/nobody/reset": {"topic": "orders", "to": "first"},
    "/groups/nobody/delete": {"typed_name": "nobody"},
    "/brokers/nobody/setting": {"key": "brokerName", "value": "x"},
}


async def test_a_thing_that_does_not_exist_is_not_changed(site: Site) -> None:
    for path, form in CHANGES.items():
        assert (await site.browser.post(path, form)).status_code == 404, path
    assert await groups.list_names(site.admin) == []


async def test_a_part_of_a_page_says_in_its_place_what_is_missing(site: Site) -> None:
    asked = {"hx-request": "true", "hx-target": "section#resize"}
    missing = await site.browser.get("/topics/nobody", **asked)
    assert missing.status_code == 404
    assert '<div id="resize">' in missing.text
    asked["hx-target"] = 'div#"><script>'
    assert "<script>" not in (await site.browser.get("/topics/nobody", **asked)).text


async def test_a_search_for_an_unknown_name_keeps_its_form(site: Site) -> None:
    for path in ("/messages?topic=nobody", "/balance?group=nobody"):
        missing = await site.browser.get(path)
        assert missing.status_code == 404
        assert 'value="nobody"' in missing.text


async def test_an_address_without_a_page_links_to_the_overview(site: Site) -> None:
    missing = await site.browser.get("/nothing/here")
    assert missing.status_code == 404
    assert "there is no such page" in missing.text
    assert '<p><a href="/">Overview</a>' in missing.text
