import pytest
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS

pytestmark = pytest.mark.virtual_time


async def test_changes_are_listed_with_their_outcome_and_can_be_searched(orders_site: Site) -> None:
    assert "Nothing was changed" in await orders_site.browser.text("/audit")
    await orders_site.browser.post("/messages/new", {"topic": "orders", "body": "x"})
    await orders_site.browser.post("/messages/new", {"topic": "order", "body": "x"})
    html = await orders_site.browser.text("/audit")
    assert html.count("message.send") == 2
    assert ">done<" in html
    assert ">refused<" in html
    refused = await orders_site.browser.text("/audit?part=REFUSED")
    assert refused.count("message.send") == 1
    entries = (await orders_site.browser.facts("/audit"))["entries"]
    assert [entry["outcome"] for entry in entries] == ["refused", "done"]


async def test_what_somebody_typed_is_escaped(orders_site: Site) -> None:
    form = {"topic": HOSTILE, "tag": HOSTILE, "body": "x"}
    response = await orders_site.browser.post("/messages/new", form)
    for html in (response.text, await orders_site.browser.text("/audit")):
        assert not any(mark in html for mark in MARKS)
