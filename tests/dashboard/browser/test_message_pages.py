"""Messages, dead letters, access and the others in a real browser, with hostile text in all."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect
from tests.dashboard.browser.chromium import Tab, check_pages, chromium, needs_chromium, tab
from tests.dashboard.conftest import SECURED
from tests.dashboard.pages.orders_topic import HOSTILE

from roquet.admin import dead_letters
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import serve_dashboard
from roquet.model.message import Message
from roquet.testing.cluster import Cluster, cluster

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.timeout(300)]


@asynccontextmanager
async def shop(**settings: Any) -> AsyncIterator[tuple[Cluster, str, str]]:
    """A cluster whose group `billing` gave some messages up; the dashboard's URL, a hostile id."""
    async with cluster(brokers=2, trace_topic=True, default_queue_count=2, **settings) as running:
        sent = ""
        async with Producer(running.namesrv_addr, config=ProducerConfig(trace=True)) as producer:
            await producer.send("orders", b"\x00\x01binary", tag="binary", keys=("raw",))
            await producer.send("orders", b'{"amount": 3}', tag="new", keys=("4711",))
            receipt = await producer.send(
                "orders",
                HOSTILE.encode(),
                tag=HOSTILE,
                keys=(HOSTILE.replace(" ", ""),),
                properties={HOSTILE: HOSTILE},
            )
            place = {
                "topic": "orders",
                "broker": receipt.queue.broker_name,
                "queue": receipt.queue.queue_id,
                "offset": receipt.queue_offset,
            }
            sent = f"/messages/one?{urlencode(place)}"
        config = ConsumerConfig(
            consume_from=ConsumeFrom.FIRST, trace=True, instance="<script>alert(9)</script>"
        )
        async with PushConsumer(
            running.namesrv_addr, group="billing", topic="orders", config=config
        ) as member:
            handled = asyncio.create_task(member.run(_give_up))
            settings_ = DashboardConfig(name_servers=running.namesrv_addr, port=0)
            async with serve_dashboard(settings_) as url:
                await _until_dead(running.namesrv_addr, 3)
                yield running, url, sent
            member.stop()
            with suppress(asyncio.CancelledError):
                await handled


async def _give_up(message: ReceivedMessage) -> None:
    if message.topic == "orders":
        await message.dead_letter()


async def _until_dead(namesrv: str, count: int) -> None:
    """Wait until so many messages of group `billing` are dead letters."""
    async with dead_letters.open_reader(namesrv) as reader, asyncio.timeout(20):
        found = 0
        while found < count:
            await asyncio.sleep(0.1)
            found = sum(one.total or 0 for one in await dead_letters.counts(reader, "billing"))


async def test_no_page_runs_what_messages_and_clients_say() -> None:
    async with shop() as (_, url, hostile), chromium() as browser:
        await check_pages(
            browser,
            url,
            [
                "/messages",
                "/messages?topic=orders",
                hostile,
                hostile.replace("/one", "/new"),
                "/messages/tail?topic=orders",
                "/dead-letters",
                "/dead-letters/billing",
                "/access",
                "/jobs",
                "/balance",
                "/balance?group=billing",
                "/audit",
            ],
        )


async def test_a_tail_of_a_thousand_messages_a_second_stays_small_and_smooth() -> None:
    async with shop() as (running, url, _), chromium() as browser, tab(browser, url) as shown:
        await shown.go("/messages/tail?topic=orders&rate=100")
        rows = shown.page.locator("#tail-rows tr")
        counts = shown.page.locator("#tail-counts")
        await expect(counts).to_contain_text("messages")
        await shown.page.evaluate(FRAMES)
        flood = asyncio.create_task(_flood(running.namesrv_addr, seconds=5))
        await rows.nth(0).wait_for()
        await flood
        slowest_ms: float = await shown.page.evaluate("window.slowestFrame")
        assert slowest_ms < 1_000
        assert await rows.count() <= 300
        text = await counts.inner_text()
        assert "too many to show" in text
        await shown.page.locator("#tail-pause").click()
        assert "paused" in await counts.inner_text()
        await shown.page.locator("#tail-clear").click()
        assert await rows.count() == 0
        await shown.page.locator("#tail-pause").click()
        await expect(counts).to_have_text(re.compile("^0 messages"))
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("orders", HOSTILE.encode(), tag=HOSTILE)
        await rows.nth(0).wait_for()
        assert HOSTILE in await rows.nth(0).inner_text()
        assert shown.errors == []


async def test_a_message_is_sent_and_dead_letters_are_sent_again_by_hand() -> None:
    async with shop() as (_, url, _), chromium() as browser, tab(browser, url) as shown:
        page = shown.page
        await shown.go("/messages/new?topic=orders")
        await page.get_by_label("Body", exact=True).fill("typed by hand")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("status").wait_for()
        assert "sent " in await page.get_by_role("status").inner_text()
        await shown.go("/messages?topic=orders&text=typed")
        assert "typed by hand" in await page.locator("tbody").inner_text()
        await shown.go("/dead-letters/billing")
        for box in (await page.get_by_role("checkbox").all())[:2]:
            await box.check()
        await page.get_by_role("button", name="Send the chosen ones again").click()
        await page.get_by_role("button", name="Send 2 messages").click()
        assert "2 messages sent again" in await page.get_by_role("status").inner_text()
        await shown.go("/audit")
        audited = await page.locator("tbody").inner_text()
        assert "dead-letters.resend" in audited
        assert "message.send" in audited
        assert shown.errors == []


async def test_users_and_policies_are_made_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "rootsecret")
    async with (
        cluster(brokers=2, **SECURED) as running,
        serve_dashboard(DashboardConfig(name_servers=running.namesrv_addr, port=0)) as url,
        chromium() as browser,
        tab(browser, url) as shown,
    ):
        await shown.go("/access")
        await _fill_form(shown, "Create or change a user", {"Name": "bob", "Password": "b0b"})
        await _fill_form(
            shown, "Allow or deny something", {"User": "bob", "Resource": "Topic:orders"}, "Pub"
        )
        question = shown.page.locator("form").filter(has_text="May somebody do something?")
        await question.get_by_label("User").fill("bob")
        await question.get_by_label("Action").select_option("Pub")
        await question.get_by_label("Resource").fill("Topic:orders")
        await question.get_by_role("button", name="Ask").click()
        assert "bob may Pub on Topic:orders" in await shown.page.get_by_role("status").inner_text()
        assert shown.errors == []
        await check_pages(browser, url, ["/access"])


async def _fill_form(shown: Tab, name: str, fields: dict[str, str], *boxes: str) -> None:
    """Open a form, fill it, tick boxes, and send it; the page has to say that it worked."""
    form = shown.page.locator("details").filter(has_text=name)
    await form.locator("summary").click()
    for label, value in fields.items():
        await form.get_by_label(label).fill(value)
    for box in boxes:
        await form.get_by_label(box).check()
    await form.get_by_role("button").click()
    await shown.page.get_by_role("status").wait_for()


async def _flood(namesrv: str, seconds: int) -> None:
    """Send a thousand messages a second."""
    async with Producer(namesrv) as producer:
        for number in range(seconds * 20):
            body = json.dumps({"number": number}).encode()
            await producer.send_batch([Message("orders", body, tag="flood")] * 50)
            await asyncio.sleep(0.05)


FRAMES = """
window.slowestFrame = 0;
let last = performance.now();
requestAnimationFrame(function frame(now) {
  window.slowestFrame = Math.max(window.slowestFrame, now - last);
  last = now;
  requestAnimationFrame(frame);
});
"""
