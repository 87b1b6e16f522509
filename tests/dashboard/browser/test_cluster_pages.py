"""Overview, topics, groups and brokers in a real browser: every page, every action, every key.

`DASHBOARD_PICTURES=docs/howto DASHBOARD_SECONDS=40 pytest …` saves the pictures of
docs/howto/dashboard.md there, after so many seconds of work.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.dashboard.browser.chromium import Tab, check_pages, chromium, needs_chromium, tab

from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import serve_dashboard
from roquet.testing.cluster import cluster
from roquet.wire.signing import Credentials

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.timeout(300)]

PATHS = (
    "/", "/topics", "/topics?system=1", "/topics/orders", "/topics/orders/resize?queues=2",
    "/topics/orders/delete", "/groups", "/groups/billing",
    "/groups/billing/reset?topic=orders&to=first", "/groups/billing/delete", "/brokers",
    "/brokers/broker-a", "/brokers/broker-a/setting?key=autoCreateTopicEnable&value=true",
    "/brokers/broker-a?changed=1", "/balance", "/balance?group=billing", "/access", "/login",
)  # fmt: skip

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


class Shop:
    """A cluster with two groups at work, and its dashboard."""

    def __init__(self, namesrv: str, url: str, admin: AdminClient) -> None:
        self.namesrv = namesrv
        self.url = url
        self.admin = admin


@asynccontextmanager
async def shop(**settings: Any) -> AsyncIterator[Shop]:
    async with (
        cluster(brokers=2, auto_create_topic=False) as running,
        AdminClient(running.namesrv_addr) as admin,
    ):
        for name, queues, kind in (
            ("orders", 4, None),
            ("clicks", 8, None),
            ("payments", 2, "FIFO"),
        ):
            attributes = f"+message.type={kind}" if kind else None
            wanted = TopicSettings(read_queues=queues, write_queues=queues, attributes=attributes)
            await topics.create(admin, name, wanted)
        work = [
            asyncio.create_task(one)
            for one in (
                _send(running.namesrv_addr),
                _handle(running.namesrv_addr, "billing", "orders", 0, 0),
                _handle(running.namesrv_addr, "billing", "orders", 0, 2),
                _handle(running.namesrv_addr, "search-index", "clicks", 0.2, 0),
            )
        ]
        config = DashboardConfig(
            name_servers=running.namesrv_addr, port=0, sample_ms=500, **settings
        )
        async with serve_dashboard(config) as url:
            await asyncio.sleep(float(os.environ.get("DASHBOARD_SECONDS", "3")))
            yield Shop(running.namesrv_addr, url, admin)
        for task in work:
            task.cancel()
        await asyncio.wait(work)


async def _send(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        number = 0
        while True:
            for topic in ("orders", "clicks", "clicks", "clicks"):
                body = b'{"order": %d, "total": 12.5}' % number
                await producer.send(topic, body, tag="new", keys=[f"order-{number}"])
                number += 1
            await asyncio.sleep(0.05)


async def _handle(namesrv: str, group: str, topic: str, seconds: float, later: float) -> None:
    await asyncio.sleep(later)

    async def handle(_message: ReceivedMessage) -> None:
        await asyncio.sleep(seconds)

    async with PushConsumer(namesrv, group=group, topic=topic, config=FIRST) as consumer:
        await consumer.run(handle)


async def picture(shown: Tab, name: str, height: int = 820) -> None:
    """Save a picture of a page, where pictures are wanted."""
    if folder := os.environ.get("DASHBOARD_PICTURES"):
        await shown.page.set_viewport_size({"width": 1280, "height": height})
        await shown.page.screenshot(path=Path(folder) / f"dashboard-{name}.png", type="png")


async def test_every_page_has_no_error_and_fits_in_both_themes_and_on_a_telephone() -> None:
    async with shop() as it, chromium() as browser:
        await check_pages(browser, it.url, PATHS)
        async with tab(browser, it.url) as shown:
            await shown.go("/")
            await picture(shown, "overview", 700)
            await shown.go("/groups/billing")
            await picture(shown, "group", 820)
            await shown.go("/messages?topic=orders")
            await picture(shown, "messages", 540)
        async with tab(browser, it.url, dark=True) as shown:
            await shown.go("/topics/orders")
            await picture(shown, "topic")


async def test_a_topic_is_made_changed_resized_and_deleted_by_hand() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await shown.go("/topics")
        await page.get_by_text("Create a topic").click()
        await page.get_by_label("Name").fill("returns")
        await page.get_by_label("Queues on each broker").fill("2")
        await page.get_by_role("button", name="Create").click()
        await page.get_by_text("created on broker-a, broker-b").wait_for()
        await page.get_by_label("Permission").select_option("R")
        await page.get_by_role("button", name="Change…").click()
        await page.get_by_role("button", name="Change", exact=True).click()
        await page.get_by_text("changed on broker-a, broker-b").wait_for()
        await page.get_by_label("Queues on each broker").fill("4")
        await page.get_by_role("button", name="Resize…").click()
        await page.get_by_text("then 4").first.wait_for()
        await page.get_by_role("button", name="Resize", exact=True).click()
        await page.locator("#resize").get_by_text("done").wait_for()
        await page.get_by_role("button", name="Delete…").click()
        await expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
        await page.get_by_label("Type returns to confirm").fill("returns")
        await page.get_by_role("button", name="Delete", exact=True).click()
        await page.get_by_text("topic returns is deleted").wait_for()
        assert "returns" not in await topics.list_names(it.admin)
        assert shown.errors == []


async def test_a_group_is_made_changed_reset_and_deleted_by_hand() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await shown.go("/groups")
        await page.get_by_text("Create a group").click()
        await page.get_by_label("Name").fill("audit")
        await page.get_by_role("button", name="Create").click()
        await page.get_by_text("created on broker-a, broker-b").wait_for()
        await page.get_by_label("May consume").select_option("no")
        await page.get_by_role("button", name="Change").click()
        await page.get_by_text("disabled on broker-a, broker-b").wait_for()
        await page.get_by_role("button", name="Delete…").click()
        await page.get_by_label("Type audit to confirm").fill("audit")
        await page.get_by_role("button", name="Delete", exact=True).click()
        await page.get_by_text("group audit is deleted").wait_for()
        await shown.go("/groups/search-index")
        await page.get_by_label("Topic").select_option("clicks")
        await page.get_by_label("Go on at").select_option("last")
        await page.get_by_role("button", name="Reset…").click()
        await page.get_by_text("will never be delivered to it").wait_for()
        await page.get_by_role("button", name="Reset").click()
        await page.get_by_text("reset in 16 queues").wait_for()
        assert "audit" not in await groups.list_names(it.admin)
        assert shown.errors == []


async def test_a_setting_is_found_and_changed_by_hand() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await shown.go("/brokers")
        await page.get_by_role("link", name="broker-a").first.click()
        await page.get_by_role("searchbox").press_sequentially("autoCreateTopicEnable")
        await page.get_by_text(re.compile(r"^1 setting\b")).first.wait_for()
        await page.get_by_label("autoCreateTopicEnable").fill("true")
        await page.get_by_role("button", name="Change…").click()
        await page.get_by_text("autoCreateTopicEnable is false, then true").wait_for()
        await page.get_by_role("button", name="Change").click()
        await page.get_by_text("autoCreateTopicEnable is changed").wait_for()
        assert shown.errors == []


async def test_keys_lead_to_pages_search_and_help() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await shown.go("/")
        await page.keyboard.press("?")
        keys = await page.locator("dialog[open] dt").all_inner_texts()
        await page.keyboard.press("Escape")
        pages = {words[-1] for words in map(str.split, keys) if words[0] == "g"}
        wanted = {"t": "/topics", "g": "/groups", "m": "/messages", "d": "/dead-letters",
                  "b": "/brokers", "a": "/access", "j": "/jobs", "l": "/balance",
                  "u": "/audit", "o": "/"}  # fmt: skip
        assert pages == wanted.keys()
        for key, path in wanted.items():
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await page.wait_for_url(it.url.rstrip("/") + path)
        await shown.go("/topics")
        await page.keyboard.press("/")
        await page.keyboard.type("pay")
        await page.get_by_text("1 topic").wait_for()
        await expect(page.locator("#list")).to_contain_text("payments")
        await expect(page.locator("#list")).not_to_contain_text("orders")
        await page.keyboard.press("Tab")
        await page.locator("h1").click()
        await page.keyboard.press("?")
        await page.locator("dialog[open]").wait_for()
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog[open]")).to_have_count(0)
        assert shown.errors == []


async def test_a_chosen_theme_stays() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        page = shown.page
        await shown.go("/")
        light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.get_by_role("button", name="Use the dark theme").click()
        await shown.go("/topics")
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert light != dark
        await page.get_by_role("button", name="Use the light theme").click()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == light


async def test_the_overview_follows_the_cluster_without_a_reload() -> None:
    async with shop() as it, chromium() as browser, tab(browser, it.url) as shown:
        await shown.go("/")
        await shown.page.evaluate("window.stays = true")
        figures = shown.page.locator(".figures")
        before = await figures.inner_text()
        async with asyncio.timeout(30):
            while await figures.inner_text() == before:
                await shown.page.wait_for_timeout(500)
        assert await shown.page.evaluate("window.stays")
        assert shown.errors == []


async def test_pages_work_without_scripts() -> None:
    async with shop() as it, chromium() as browser:
        context = await browser.new_context(java_script_enabled=False)
        context.set_default_timeout(20_000)
        page = await context.new_page()
        await page.goto(f"{it.url}topics")
        await page.get_by_role("searchbox").fill("pay")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_role("link", name="payments")).to_have_count(1)
        await page.get_by_role("link", name="payments").click()
        await page.get_by_role("button", name="Delete…").click()
        await page.get_by_label("Type payments to confirm").fill("payments")
        await page.get_by_role("button", name="Delete", exact=True).click()
        await page.get_by_text("topic payments is deleted").wait_for()
        await context.close()


async def test_a_user_logs_in_and_out_by_hand() -> None:
    root = Credentials(access_key="root", secret_key="rootsecret")
    async with cluster(
        brokers=1, authentication_enabled=True, authorization_enabled=True, initial_user=root
    ) as running:
        config = DashboardConfig(name_servers=running.namesrv_addr, port=0, login=True)
        async with (
            serve_dashboard(config) as url,
            chromium() as browser,
            tab(browser, url) as shown,
        ):
            page = shown.page
            await page.goto(f"{url}brokers")
            await page.get_by_label("User").fill("root")
            await page.get_by_label("Password").fill("rootsecret")
            await page.get_by_role("button", name="Log in").click()
            await page.wait_for_url(f"{url}brokers")
            await page.get_by_role("button", name="Log out").click()
            await page.wait_for_url(f"{url}login")
            cookies = await page.context.cookies()
            assert all(cookie["httpOnly"] for cookie in cookies)
