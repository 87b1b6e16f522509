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
from tests.dashboard.pages.test_jobs import row as job_row

from roquet.admin import dead_letters
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.sampling.jobs import JobRow
from roquet.dashboard.server import serve_dashboard
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


async def test_a_message_is_sent_and_dead_letters_are_sent_again_by_hand() -> None:
    async with shop() as (_, url, _), chromium() as browser, tab(browser, url) as shown:
        page = shown.page
        await shown.go("/messages/new?topic=orders")
        await page.get_by_label("Body", exact=True).fill("typed by hand")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("status").wait_for()
        await expect(page.get_by_role("status")).to_contain_text("sent ")
        await shown.go("/messages?topic=orders&text=typed")
        await expect(page.locator("tbody")).to_contain_text("typed by hand")
        await shown.go("/dead-letters/billing")
        boxes = page.locator("tbody").get_by_role("checkbox")
        await page.get_by_label("Choose all that are shown").check()
        chosen = [await box.is_checked() for box in await boxes.all()]
        assert len(chosen) >= 3
        assert all(chosen)
        await boxes.first.uncheck()
        await page.get_by_role("button", name="Send the chosen ones again").click()
        count = f"{len(chosen) - 1} messages"
        await page.get_by_role("button", name=f"Send {count}").click()
        await expect(page.get_by_role("status")).to_contain_text(f"{count} sent again")
        await shown.go("/audit")
        audited = await page.locator("tbody").inner_text()
        assert "dead-letters.resend" in audited
        assert "message.send" in audited
        assert shown.errors == []


async def test_messages_are_found_in_every_way_by_hand() -> None:
    async with shop() as (running, url, _), chromium() as browser, tab(browser, url) as shown:
        async with Producer(running.namesrv_addr) as producer:
            receipt = await producer.send(
                "orders", b'{"amount": 9}', tag="paid", keys=("4712",), properties={"amount": "9"}
            )
        page, rows = shown.page, shown.page.locator("tbody tr")
        for field, value in (
            ("Key", "4712"),
            ("Text", '"amount": 9'),
            ("Tags", "paid || gone"),
            ("SQL92", "amount > 5"),
            ("Message id", receipt.message_id),
            ("From (UTC)", "2020-01-01T00:00"),
        ):
            await shown.go("/messages")
            await page.get_by_label("Topic").fill("orders")
            await page.get_by_label(field, exact=True).fill(value)
            await page.get_by_role("button", name="Find").click()
            await rows.first.wait_for()
            await expect(page.locator("tbody")).to_contain_text("4712")
            assert field == "From (UTC)" or await rows.count() == 1, field
        await shown.go("/messages?topic=orders&sql=amount+%3E+5")
        await rows.first.get_by_role("link").click()
        await page.get_by_role("heading", name=receipt.message_id).wait_for()
        await expect(page.locator("pre")).to_contain_text('"amount": 9')
        await page.get_by_role("link", name="hex").click()
        await expect(page.locator("pre")).to_contain_text("00000000  7b 22 61")
        await page.get_by_role("link", name="text", exact=True).click()
        await expect(page.locator("pre")).to_have_text('{"amount": 9}')
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Download the body").click()
        saved = await (await download.value).path()
        assert saved.read_bytes() == b'{"amount": 9}'
        await page.get_by_role("link", name="Send one like it").click()
        await expect(page.locator("textarea[name=body]")).to_have_value('{"amount": 9}')
        await expect(page.get_by_label("Tag")).to_have_value("paid")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("status").wait_for()
        await shown.go("/messages?topic=orders&tags=paid")
        await expect(rows).to_have_count(2)
        assert shown.errors == []


async def test_a_trace_is_shown_and_a_tail_follows_what_is_wanted() -> None:
    async with shop() as (running, url, hostile), chromium() as browser, tab(browser, url) as shown:
        page = shown.page
        await shown.go(hostile)
        trace = page.get_by_role("region", name="Trace")
        async with asyncio.timeout(20):
            while "try 1" not in await trace.inner_text():
                await asyncio.sleep(0.5)
                await page.reload()
        await expect(trace).to_contain_text("sent")
        await shown.go("/messages/tail")
        await page.get_by_label("Topic").fill("orders")
        await page.get_by_label("Tags").fill("wanted")
        await page.get_by_role("button", name="Follow").click()
        await expect(page.locator("#tail-counts")).to_have_text(re.compile("^0 messages"))
        async with Producer(running.namesrv_addr) as producer:
            for tag in ("other", "wanted", "other"):
                await producer.send("orders", tag.encode(), tag=tag)
        rows = page.locator("#tail-rows tr")
        await rows.first.wait_for()
        await page.wait_for_timeout(1_000)
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("wanted")
        await rows.first.get_by_role("link").click()
        await expect(page.locator("pre")).to_have_text("wanted")
        assert shown.errors == []


async def test_dead_letters_are_exported_and_strategies_compared_by_hand() -> None:
    async with shop() as (_, url, _), chromium() as browser, tab(browser, url) as shown:
        page = shown.page
        await shown.go("/dead-letters")
        await page.get_by_role("link", name="billing").click()
        await expect(page.locator("tbody").first).to_contain_text("given up after")
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Export as JSON lines").click()
        *letters, end = (await (await download.value).path()).read_text("utf-8").splitlines()
        assert json.loads(end) == {"complete": True, "letters": len(letters)}
        assert len(letters) == 3
        await shown.go("/groups/billing")
        await page.locator("#main").get_by_role("link", name="Balance").click()
        await page.get_by_label("Then").select_option("a member joins")
        await page.get_by_role("button", name="Show").click()
        await page.get_by_role("columnheader", name="Fewest possible").wait_for()
        await expect(page.get_by_label("Members")).to_contain_text("(a new member)")
        await page.get_by_label("Then").select_option(index=2)
        await page.get_by_role("button", name="Show").click()
        await page.get_by_text("nobody would be left").wait_for()
        assert [error for error in shown.errors if "400 (Bad Request)" not in error] == []


async def test_tables_of_archives_are_shown() -> None:
    async with cluster(brokers=1) as running, chromium() as browser:
        settings = DashboardConfig(
            name_servers=running.namesrv_addr, port=0, tables=("/lake/orders", "/lake/gone")
        )
        async with serve_dashboard(settings, job_source=_jobs) as url:
            await check_pages(browser, url, ["/jobs"])


def _jobs(table: str) -> list[JobRow]:
    if table == "/lake/gone":
        raise OSError("no such directory")
    return [
        job_row(table),
        job_row(f"{table}/clicks", alert="retention will delete messages: run the job"),
    ]


async def test_a_read_only_dashboard_offers_no_change() -> None:
    async with cluster(brokers=1) as running, chromium() as browser:
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("orders", b"hello")
        settings = DashboardConfig(name_servers=running.namesrv_addr, port=0, read_only=True)
        paths = ["/topics", "/topics/orders", "/groups", "/brokers/broker-a", "/access",
                 "/messages?topic=orders", "/topics/orders/delete"]  # fmt: skip
        async with serve_dashboard(settings) as url, tab(browser, url) as shown:
            for path in paths:
                await shown.go(path)
                await expect(shown.page.get_by_text("read-only", exact=True)).to_have_count(1)
                forms = shown.page.locator("form[method=post], button.danger, button.primary")
                names = await forms.all_inner_texts()
                assert set(names) <= {"Find", "Ask"}, path
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
        user = {"Name": "bob", "Password": "b0b"}
        await _fill_form(shown, "Create or change a user", user, "create")
        entry = {"User": "bob", "Resource": "Topic:orders"}
        await _fill_form(shown, "Allow or deny something", entry, "Pub", "Allow")
        question = shown.page.locator("form").filter(has_text="May somebody do something?")
        await question.get_by_label("User").fill("bob")
        await question.get_by_label("Action").select_option("Pub")
        await question.get_by_label("Resource").fill("Topic:orders")
        await question.get_by_role("button", name="Ask").click()
        await expect(shown.page.get_by_role("status")).to_contain_text(
            "bob may Pub on Topic:orders"
        )
        await shown.page.get_by_label("Delete the entry for Topic:orders of bob").click()
        await shown.page.get_by_role("button", name="Delete the entry").click()
        await shown.page.get_by_text("policy of bob for Topic:orders deleted").wait_for()
        form = shown.page.locator("details").filter(has_text="Create or change a user")
        await form.locator("summary").click()
        await form.get_by_label("change").check()
        await form.get_by_label("Name").fill("bob")
        await form.get_by_label("Status").select_option("disabled")
        await form.get_by_role("button").click()
        await shown.page.get_by_text("user bob changed").wait_for()
        row = shown.page.get_by_role("row").filter(has_text="bob")
        await expect(row.first).to_contain_text("disabled")
        form = shown.page.locator("details").filter(has_text="Delete a user")
        await form.locator("summary").click()
        await form.get_by_label("Name", exact=True).fill("bob")
        await form.get_by_label("The name once more").fill("bob")
        await form.get_by_role("button").click()
        await shown.page.get_by_text("user bob deleted").wait_for()
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
