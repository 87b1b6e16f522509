import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.dashboard.conftest import Site

from roquet.admin import groups, topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer

pytestmark = pytest.mark.virtual_time


async def send(it: Site, count: int) -> None:
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        for _ in range(count):
            await producer.send("orders", b"x")


@asynccontextmanager
async def member(it: Site) -> AsyncIterator[PushConsumer]:
    config = ConsumerConfig(clock=it.clock, consume_from=ConsumeFrom.FIRST)
    consumer = PushConsumer(it.namesrv, group="billing", topic="orders", config=config)

    async def handle(_message: object) -> None:
        """Take it."""

    async with consumer:
        task = asyncio.create_task(consumer.run(handle))
        await it.clock.sleep(10_000)
        yield consumer
        consumer.stop()
        await task


async def make(it: Site) -> None:
    await topics.create(it.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await it.settle()
    await send(it, 8)


async def test_a_group_is_shown_with_members_owners_and_trends(site: Site) -> None:
    await make(site)
    async with member(site):
        for _ in range(2):
            await site.browser.dashboard.sampler.step()
            await site.clock.sleep(5_000)
        facts = await site.browser.facts("/groups/billing")
        assert facts["trend"]["caught_up_ms"] == 0
        assert facts["group"]["members"][0]["subscriptions"]["orders"] == "*"
        owned = [row for row in facts["queues"] if row["queue"]["topic"] == "orders"]
        assert all(len(row["queue"]["owners"]) == 1 for row in owned)
        html = await site.browser.text("/groups/billing")
        assert "Who owned which queue" in html
        assert 'aria-label="lag over time"' in html
        assert "caught up" in await site.browser.text("/groups")
        busy = await site.browser.post("/groups/billing/delete", {"typed_name": "billing"})
        assert "stop them first" in busy.text


async def test_groups_are_created_changed_and_listed_by_state(site: Site) -> None:
    shown = await site.browser.post("/groups", {"name": "billing", "retries": "3"})
    assert shown.url.path == "/groups/billing"
    assert "already" in (await site.browser.post("/groups", {"name": "billing"})).text
    assert (await site.browser.post("/groups", {"name": "b", "retries": "-1"})).status_code == 400
    for form in ({}, {"retries": "x"}, {"retries": "1001"}):
        changed = await site.browser.post("/groups/billing/update", form)
        assert changed.status_code == 400
    await site.browser.post("/groups/billing/update", {"retries": "5", "enabled": "no"})
    assert (await groups.show(site.admin, "billing")).disabled_on == ["broker-a", "broker-b"]
    await site.browser.dashboard.sampler.step()
    for state, count in (("all", 1), ("idle", 1), ("problems", 1), ("lagging", 0), ("odd", 1)):
        facts = await site.browser.facts(f"/groups?state={state}&sort=lag")
        assert facts["groups"]["total"] == count, state
    assert "disabled" in await site.browser.text("/groups?sort=members")


async def test_a_reset_is_previewed_and_then_made(site: Site) -> None:
    await make(site)
    async with member(site):
        pass
    await send(site, 4)
    path = "/groups/billing/reset?topic=orders"
    assert "4 messages will never be delivered" in await site.browser.text(f"{path}&to=last")
    html = await site.browser.text(f"{path}&to=first&queue=broker-a:0")
    assert "2 messages will be delivered once more" in html
    assert (await groups.show(site.admin, "billing")).lag == 4
    form = {"topic": "orders", "to": "first", "queue": "broker-a:0"}
    shown = await site.browser.post("/groups/billing/reset", form)
    assert "reset in 1 queue: 2 again, 0 skipped" in shown.text
    form = {"topic": "orders", "to": "time", "at": "1970-01-02T00:00"}
    shown = await site.browser.post("/groups/billing/reset", form)
    assert "reset in 4 queues" in shown.text
    assert (await groups.show(site.admin, "billing")).lag == 12


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "choose the topic"),
        ("to=first", "choose the topic"),
        ("topic=orders", "choose where the group goes on"),
        ("topic=orders&to=", "choose where the group goes on"),
        ("topic=orders&to=somewhere", "choose where the group goes on"),
        ("topic=orders&to=time", "choose the time"),
        ("topic=orders&to=time&at=x", "no time like"),
        ("topic=orders&to=time&at=1795909285", "at"),
        ("topic=orders&to=last&queue=a", "BROKER:ID"),
    ],
)
async def test_a_reset_without_a_choice_is_refused(site: Site, query: str, text: str) -> None:
    await make(site)
    refused = await site.browser.get(f"/groups/billing/reset?{query}")
    assert refused.status_code == 400
    assert text in refused.text


async def test_a_group_is_deleted_once_its_name_was_typed(site: Site) -> None:
    await groups.create(site.admin, "billing", {})
    assert "its progress in 0 queues" in await site.browser.text("/groups/billing/delete")
    assert (await site.browser.post("/groups/billing/delete")).status_code == 400
    await site.browser.post("/groups/billing/delete", {"typed_name": "billing"})
    assert await groups.list_names(site.admin) == []
