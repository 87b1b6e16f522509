"""Refreshes and charts in a real browser: newest numbers, and nothing taken from a visitor."""

import asyncio
import re

import pytest
from playwright.async_api import expect
from tests.dashboard.browser import test_message_pages
from tests.dashboard.browser.chromium import Tab, chromium, needs_chromium, tab
from tests.dashboard.browser.test_cluster_pages import Shop, shop
from tests.dashboard.conftest import SECURED

from roquet.admin import access, topics
from roquet.admin.client import AdminClient
from roquet.client.producer import Producer
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.facts.access import entry_info
from roquet.dashboard.server import serve_dashboard
from roquet.model.access import PolicyType
from roquet.testing.cluster import cluster

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.timeout(300)]

REFRESHED = """
() => new Promise((resolve) => {
  document.addEventListener("dashboard:refreshed", () => resolve(true), { once: true });
})
"""


async def open_fast(shown: Tab, path: str) -> None:
    """Open a page that refreshes each second."""

    async def faster(route: object) -> None:
        response = await route.fetch()  # type: ignore[attr-defined]
        text = re.sub(r'data-refresh="\d+"', 'data-refresh="1"', await response.text())
        await route.fulfill(response=response, body=text)  # type: ignore[attr-defined]

    await shown.page.route("**" + path, faster)
    await shown.go(path)


async def test_numbers_follow_while_the_page_stays() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        for path in ("/", "/topics/orders", "/groups/billing", "/brokers/broker-a"):
            await open_fast(shown, path)
            await page.evaluate("scrollTo(0, 40); window.before = scrollY")
            before = await page.locator("#content").inner_text()
            async with asyncio.timeout(30):
                while await page.locator("#content").inner_text() == before:
                    await page.wait_for_timeout(200)
            assert await page.evaluate("window.before === scrollY"), path
        assert shown.errors == []


async def test_a_form_that_is_filled_in_and_open_details_stay() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await open_fast(shown, "/topics")
        await page.get_by_text("Create a topic").click()
        await page.get_by_label("Name").fill("returns")
        await page.get_by_label("Type", exact=False).first.select_option("FIFO")
        await page.locator("h1").click()
        for _ in range(2):
            await page.evaluate(REFRESHED)
        await expect(page.locator("details[open]")).to_have_count(1)
        await expect(page.get_by_label("Name")).to_have_value("returns")
        await expect(page.get_by_label("Type", exact=False).first).to_have_value("FIFO")
        assert shown.errors == []


async def test_a_search_stays_in_the_list_and_in_the_address() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await open_fast(shown, "/topics")
        await page.get_by_role("searchbox").press_sequentially("pay")
        await page.get_by_text("1 topic").wait_for()
        await page.evaluate(REFRESHED)
        await expect(page.locator("#list")).not_to_contain_text("orders")
        await expect(page.get_by_role("searchbox")).to_have_value("pay")
        assert "q=pay" in page.url
        assert shown.errors == []


async def requests(shown: Tab, seconds: float) -> int:
    """Refreshes that a page asks for in some seconds."""
    asked = 0

    def count(request: object) -> None:
        nonlocal asked
        asked += "x-refresh" in request.headers  # type: ignore[attr-defined]

    shown.page.on("request", count)
    await shown.page.wait_for_timeout(seconds * 1_000)
    shown.page.remove_listener("request", count)
    return asked


async def test_a_hidden_tab_and_one_with_a_selection_ask_for_nothing() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await open_fast(shown, "/topics/orders")
        assert await requests(shown, 2.5) > 0
        await page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
        assert await requests(shown, 2.5) == 0
        await expect(page.locator("#refresh")).to_contain_text("while text is selected")
        await page.evaluate("getSelection().removeAllRanges()")
        await page.locator("#refresh").wait_for(state="hidden")
        hide = """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
        await page.evaluate(hide, True)
        assert await requests(shown, 2.5) == 0
        refreshed = asyncio.create_task(page.evaluate(REFRESHED))
        await page.evaluate(hide, False)
        assert await refreshed
        assert shown.errors == []


async def test_a_form_that_nobody_fills_in_follows_and_its_box_ticks_all_letters() -> None:
    async with (
        test_message_pages.shop() as (running, url, _),
        Producer(running.namesrv_addr) as producer,
        chromium() as browser,
        tab(browser, url) as shown,
    ):
        page = shown.page
        await open_fast(shown, "/dead-letters/billing")
        letters = page.locator("input[name=letter]")
        await expect(letters).to_have_count(3)
        await producer.send("orders", b"one more")
        await expect(letters).to_have_count(4)
        await page.evaluate(REFRESHED)
        await page.get_by_label("Choose all that are shown").check()
        await page.evaluate(REFRESHED)
        await expect(page.locator("input[name=letter]:checked")).to_have_count(4)
        assert shown.errors == []


async def test_a_question_before_a_deletion_stays_that_of_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "rootsecret")
    async with (
        cluster(**SECURED) as running,
        AdminClient(running.namesrv_addr) as admin,
        serve_dashboard(DashboardConfig(name_servers=running.namesrv_addr, port=0)) as url,
        chromium() as browser,
        tab(browser, url) as shown,
    ):
        brokers = await access.every_broker(admin)
        user = access.user_call("bob", create=True, password="b0b", user_type=None, status=None)
        await access.change(admin, brokers, user)
        resources = ["Topic:clicks", "Topic:orders", "Topic:payments"]
        entries = [entry_info(resource, ["Pub"], [], deny=False) for resource in resources]
        policy = access.policy_call("bob", entries, PolicyType.CUSTOM, create=True)
        await access.change(admin, brokers, policy)
        await open_fast(shown, "/access")
        await shown.page.get_by_label("Delete the entry for Topic:orders of bob").click()
        gone = access.delete_policy_call("bob", "Topic:clicks", PolicyType.CUSTOM)
        await access.change(admin, brokers, gone)
        for _ in range(2):
            await shown.page.evaluate(REFRESHED)
        form = shown.page.locator("details.confirm[open] form")
        await expect(form.locator("input[name=resource]")).to_have_value("Topic:orders")
        await shown.page.get_by_label("Delete the entry for Topic:orders of bob").click()
        await shown.page.evaluate(REFRESHED)
        await expect(shown.page.locator("#content")).not_to_contain_text("Topic:clicks")
        assert shown.errors == []


async def test_a_lost_connection_is_said_and_taken_back() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await open_fast(shown, "/")
        before = await page.locator("h1").inner_text()
        await page.unroute_all()
        await page.context.set_offline(True)
        await page.get_by_text("No connection to the dashboard").wait_for()
        assert await page.locator("h1").inner_text() == before
        await page.context.set_offline(False)
        await page.locator("#refresh").wait_for(state="hidden")


async def test_a_topic_that_is_deleted_meanwhile_is_said_to_be_gone() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        await open_fast(shown, "/topics/payments")
        await topics.delete(it.admin, "payments")
        await shown.page.get_by_role("heading", name="Not found").wait_for()
        await shown.page.get_by_role("link", name="Topics", exact=True).last.click()
        await shown.page.get_by_role("heading", name="Topics").wait_for()


async def test_a_chart_shows_the_value_under_pointer_finger_and_key() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        await _check_chart(it, shown)
        await shown.page.mouse.move(2, 2)
        await expect(shown.page.locator("#chart-rates output")).to_have_text("")
        assert shown.errors == []
    async with shop() as it, chromium() as browser:
        context = await browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
        page = await context.new_page()
        await page.goto(it.url)
        await page.locator("#chart-lag svg.plot").tap()
        await expect(page.locator("#chart-lag output")).to_contain_text("UTC: ")
        await context.close()


async def _check_chart(it: Shop, shown: Tab) -> None:
    page = shown.page
    await open_fast(shown, "/")
    readout = page.locator("#chart-rates output")
    await page.locator("#chart-rates svg.plot").hover()
    pointed = await readout.inner_text()
    assert "UTC: in " in pointed
    assert "/s, out " in pointed
    await page.evaluate(REFRESHED)
    assert await readout.inner_text() == pointed
    await page.mouse.move(2, 2)
    await page.locator("#chart-rates svg.plot").focus()
    await page.keyboard.press("Home")
    first = await readout.inner_text()
    for _ in range(4):  # two seconds
        await page.keyboard.press("ArrowRight")
    assert await readout.inner_text() != first
    await page.keyboard.press("Escape")
    await expect(readout).to_have_text("")
