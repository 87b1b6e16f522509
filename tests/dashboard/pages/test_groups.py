import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.dashboard.conftest import OpenSite, Site

from roquet.admin import groups, topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.testing.clock import in_virtual_time


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


@in_virtual_time
async def test_a_group_is_shown_with_members_owners_and_trends(open_site: OpenSite) -> None:
    async with open_site() as it:
        await make(it)
        async with member(it):
            for _ in range(2):
                await it.browser.dashboard.sampler.step()
                await it.clock.sleep(5_000)
            facts = await it.browser.facts("/groups/billing")
            assert facts["trend"]["caught_up_ms"] == 0
            assert facts["group"]["members"][0]["subscriptions"]["orders"] == "*"
            owned = [row for row in facts["queues"] if row["queue"]["topic"] == "orders"]
            assert all(len(row["queue"]["owners"]) == 1 for row in owned)
            html = await it.browser.text("/groups/billing")
            assert "Who owned which queue" in html
            assert 'aria-label="lag over time"' in html
            assert "caught up" in await it.browser.text("/groups")
            busy = await it.browser.post("/groups/billing/delete", {"typed_name": "billing"})
            assert "stop them first" in busy.text


@in_virtual_time
async def test_groups_are_created_changed_and_listed_by_state(open_site: OpenSite) -> None:
    async with open_site() as it:
        shown = await it.browser.post("/groups", {"name": "billing", "retries": "3"})
        assert shown.url.path == "/groups/billing"
        assert "already" in (await it.browser.post("/groups", {"name": "billing"})).text
        assert (await it.browser.post("/groups", {"name": "b", "retries": "-1"})).status_code == 400
        for form in ({}, {"retries": "x"}, {"retries": "1001"}):
            changed = await it.browser.post("/groups/billing/update", form)
            assert changed.status_code == 400
        await it.browser.post("/groups/billing/update", {"retries": "5", "enabled": "no"})
        assert (await groups.show(it.admin, "billing")).disabled_on == ["broker-a", "broker-b"]
        await it.browser.dashboard.sampler.step()
        for state, count in (("all", 1), ("idle", 1), ("problems", 1), ("lagging", 0), ("odd", 1)):
            facts = await it.browser.facts(f"/groups?state={state}&sort=lag")
            assert facts["groups"]["total"] == count, state
        assert "disabled" in await it.browser.text("/groups?sort=members")


@in_virtual_time
async def test_a_reset_is_previewed_and_then_made(open_site: OpenSite) -> None:
    async with open_site() as it:
        await make(it)
        async with member(it):
            pass
        await send(it, 4)
        path = "/groups/billing/reset?topic=orders"
        assert "4 messages will never be delivered" in await it.browser.text(f"{path}&to=last")
        html = await it.browser.text(f"{path}&to=first&queue=broker-a:0")
        assert "2 messages will be delivered once more" in html
        assert (await groups.show(it.admin, "billing")).lag == 4
        form = {"topic": "orders", "to": "first", "queue": "broker-a:0"}
        shown = await it.browser.post("/groups/billing/reset", form)
        assert "reset in 1 queue: 2 again, 0 skipped" in shown.text
        form = {"topic": "orders", "to": "time", "at": "1970-01-02T00:00"}
        shown = await it.browser.post("/groups/billing/reset", form)
        assert "reset in 4 queues" in shown.text
        assert (await groups.show(it.admin, "billing")).lag == 12


@pytest.mark.parametrize(
    "query",
    [
        *("", "topic=orders", "topic=orders&to=time&at=x", "topic=orders&to=last&queue=a"),
        "topic=orders&to=time&at=1795909285",
    ],
)
@in_virtual_time
async def test_an_unclear_reset_is_refused(open_site: OpenSite, query: str) -> None:
    async with open_site() as it:
        await make(it)
        assert (await it.browser.get(f"/groups/billing/reset?{query}")).status_code == 400


@in_virtual_time
async def test_a_group_is_deleted_once_its_name_was_typed(open_site: OpenSite) -> None:
    async with open_site() as it:
        await groups.create(it.admin, "billing", {})
        assert "its progress in 0 queues" in await it.browser.text("/groups/billing/delete")
        assert (await it.browser.post("/groups/billing/delete")).status_code == 400
        await it.browser.post("/groups/billing/delete", {"typed_name": "billing"})
        assert await groups.list_names(it.admin) == []
