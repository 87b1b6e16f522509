from urllib.parse import quote

from tests.dashboard.conftest import OpenSite, Site
from tests.dashboard.facts.test_balance import facts, group
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, orders, send

from roquet.client.config import ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.dashboard.pages.balance import cells
from roquet.testing.clock import in_virtual_time


def member(it: Site, instance: str | None = None) -> PushConsumer:
    config = ConsumerConfig(clock=it.clock, instance=instance)
    return PushConsumer(it.namesrv, group="billing", topic="orders", config=config)


def test_the_picture_numbers_the_owners_of_queues() -> None:
    picture = cells(facts(group(), "c2"))
    assert picture[""] == [0, 0, 0, 0, None, None, None, None]
    assert picture["AVG"] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_member_that_joins_has_a_colour_of_its_own() -> None:
    assert set(cells(facts(group(), joins=True))["AVG"]) == {0, 1, 2, 3}


@in_virtual_time
async def test_a_group_is_chosen_and_all_strategies_are_compared(open_site: OpenSite) -> None:
    async with orders(open_site) as it, member(it) as one, member(it) as two:
        await send(it, b"x")
        await it.clock.sleep(30_000)
        assert '<option value="billing">' in await it.browser.text("/balance")
        html = await it.browser.text("/balance?group=billing")
        assert "LAG_WEIGHTED" in html
        assert "2 queues of orders, 2 members" in html
        leaves = quote(two.client_id)
        shown = await it.browser.facts(f"/balance?group=billing&topic=orders&change={leaves}")
        assert shown["facts"]["members_after"] == [one.client_id]
        by_name = {strategy["name"]: strategy for strategy in shown["facts"]["strategies"]}
        assert by_name["AVG"]["after"] == {one.client_id: ["broker-a:0", "broker-b:0"]}
        assert by_name["AVG"]["moves"] == 1
        joined = await it.browser.facts("/balance?group=billing&change=%2B")
        assert len(joined["facts"]["members_after"]) == 3


@in_virtual_time
async def test_a_group_that_cannot_be_balanced_says_why(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        response = await it.browser.get("/balance?group=nobody")
        assert response.status_code == 400
        assert "unknown to every broker" in response.text
        response = await it.browser.get("/balance?group=<script>alert(1)</script>")
        assert "<script>alert" not in response.text


@in_virtual_time
async def test_what_a_client_calls_itself_is_escaped(open_site: OpenSite) -> None:
    async with orders(open_site) as it, member(it, HOSTILE):
        await send(it, b"x")
        await it.clock.sleep(30_000)
        for address in ("/balance?group=billing", "/balance?group=billing&change=%2B"):
            html = await it.browser.text(address)
            assert "alert(1)" in html
            assert not any(mark in html for mark in MARKS)
