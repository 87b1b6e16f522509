"""The dashboard's pages and changes on a genuine cluster."""

import asyncio

import pytest
from tests.dashboard.conftest import browse

from harness import genuine
from roquet.admin import brokers, topics
from roquet.admin.client import AdminClient
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import open_dashboard

pytestmark = pytest.mark.interop

PAGES = (
    "/", "/topics", "/topics?system=1", "/topics/seen", "/topics/seen/resize?queues=2", "/groups",
    "/groups/watchers", "/groups/watchers/reset?topic=seen&to=first", "/messages?topic=seen",
    "/dead-letters", "/brokers", "/brokers/genuine-a", "/access", "/jobs", "/balance",
    "/audit",
)  # fmt: skip


async def test_pages_and_changes_work_with_the_genuine_broker(theirs: genuine.Genuine) -> None:
    config = DashboardConfig(name_servers=theirs.namesrv)
    async with (
        AdminClient(theirs.namesrv) as admin,
        open_dashboard(config) as dashboard,
        browse(dashboard) as browser,
    ):
        made = await browser.post("/topics", {"name": "seen", "queues": "4"})
        assert "created on genuine-a" in made.text, made.text
        async with Producer(theirs.namesrv) as producer:
            for _ in range(8):
                await producer.send("seen", b"hello")
        await _read(theirs.namesrv)
        await dashboard.sampler.step()
        for path in PAGES:
            response = await browser.get(path)
            assert response.status_code == 200, (path, response.text)
        facts = await browser.facts("/topics/seen")
        assert facts["topic"]["messages"] == 8
        facts = await browser.facts("/groups/watchers")
        assert [row["queue"]["committed"] for row in facts["queues"] if _is_seen(row)] == [2] * 4
        form = {"topic": "seen", "to": "first"}
        reset = await browser.post("/groups/watchers/reset", form)
        assert "reset in 4 queues: 8 again" in reset.text, reset.text
        form = {"key": "maxMessageSize", "value": "4194305"}
        assert "is changed" in (await browser.post("/brokers/genuine-a/setting", form)).text
        assert (await brokers.settings(admin, "genuine-a"))["maxMessageSize"] == "4194305"
        form["value"] = "4194304"  # as before, for other tests of the same broker
        assert "is changed" in (await browser.post("/brokers/genuine-a/setting", form)).text
        deleted = await browser.post("/groups/watchers/delete", {"typed_name": "watchers"})
        assert "is deleted" in deleted.text, deleted.text
        deleted = await browser.post("/topics/seen/delete", {"typed_name": "seen"})
        assert "is deleted" in deleted.text, deleted.text
        assert "seen" not in await topics.list_names(admin)


def _is_seen(row: dict[str, dict[str, str]]) -> bool:
    return row["queue"]["topic"] == "seen"


async def _read(namesrv: str) -> None:
    """Let a group read the eight messages and commit that it has."""
    count = 0
    everything = asyncio.Event()

    async def handle(_message: ReceivedMessage) -> None:
        nonlocal count
        count += 1
        if count == 8:
            everything.set()

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(namesrv, group="watchers", topic="seen", config=config) as consumer:
        task = asyncio.create_task(consumer.run(handle))
        async with asyncio.timeout(60):
            await everything.wait()
        consumer.stop()
        await task
