from tests.dashboard.conftest import OpenSite
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, orders

from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_changes_are_listed_with_their_outcome_and_can_be_searched(
    open_site: OpenSite,
) -> None:
    async with orders(open_site) as it:
        assert "Nothing was changed" in await it.browser.text("/audit")
        await it.browser.post("/messages/new", {"topic": "orders", "body": "x"})
        await it.browser.post("/messages/new", {"topic": "order", "body": "x"})
        html = await it.browser.text("/audit")
        assert html.count("message.send") == 2
        assert ">done<" in html
        assert ">refused<" in html
        refused = await it.browser.text("/audit?part=REFUSED")
        assert refused.count("message.send") == 1
        entries = (await it.browser.facts("/audit"))["entries"]
        assert [entry["outcome"] for entry in entries] == ["refused", "done"]


@in_virtual_time
async def test_what_somebody_typed_is_escaped(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        form = {"topic": HOSTILE, "tag": HOSTILE, "body": "x"}
        response = await it.browser.post("/messages/new", form)
        for html in (response.text, await it.browser.text("/audit")):
            assert not any(mark in html for mark in MARKS)
