"""Every page that asks brokers says it when they refuse, are away or do not answer in time."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.dashboard.conftest import JSON, SECURED, Site, open_site

from roquet.admin import groups, topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.app import PAGES
from roquet.dashboard.request_context import with_settings_of
from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed, RoquetError
from roquet.net.pool import ChannelPool
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.inspection import GetGroupsOfTopic
from roquet.wire.calls.admin.stats import GetTopicStats
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

FAILURES: Mapping[str, RoquetError] = {
    "refuses": CallRefused(ResponseCode.NO_PERMISSION, "bob may not do that"),
    "is away": ConnectFailed("cannot connect to it"),
    "is slow": CallTimeout("no reply within 3000 ms"),
}

PLACE = "topic=orders&broker=broker-a&queue=0&offset=0"

ADDRESSES: Mapping[str, str] = {
    "/": "/",
    "/topics/{name:path}": "/topics/orders",
    "/topics/{name:path}/update": "/topics/orders/update?permission=R",
    "/topics/{name:path}/resize": "/topics/orders/resize?queues=1",
    "/topics/{name:path}/delete": "/topics/orders/delete",
    "/groups": "/groups",
    "/groups/{name:path}": "/groups/billing",
    "/groups/{name:path}/reset": "/groups/billing/reset?topic=orders&to=first",
    "/groups/{name:path}/delete": "/groups/billing/delete",
    "/messages": "/messages?topic=orders",
    "/messages/one": f"/messages/one?{PLACE}",
    "/messages/body": f"/messages/body?{PLACE}",
    "/dead-letters": "/dead-letters",
    "/dead-letters/{name}": "/dead-letters/billing",
    "/dead-letters/{name}/export": "/dead-letters/billing/export",
    "/dead-letters/{name}/resend": "/dead-letters/billing/resend?letter=broker-a/0/0",
    "/brokers": "/brokers",
    "/brokers/{name:path}": "/brokers/broker-a",
    "/brokers/{name:path}/setting": "/brokers/broker-a/setting?key=slaveReadEnable&value=true",
    "/access": "/access",
    "/balance": "/balance?group=billing",
}
"""An address of each page that asks brokers."""

WITHOUT_BROKERS = {
    "/topics",  # asks name servers, and shows sizes of samples, which the overview tells of
    *("/messages/new", "/messages/tail", "/jobs", "/audit", "/login"),
    "/messages/tail/events",  # a stream, with tests of its own
}

PARTS = {
    *("/", "/topics/{name:path}", "/groups", "/groups/{name:path}", "/messages"),
    *("/brokers", "/access"),
}
"""Pages that show what all brokers say."""

Fail = Callable[..., None]


@asynccontextmanager
async def filled() -> AsyncIterator[Site]:
    """A site whose brokers have a topic, a group and dead letters."""
    async with open_site(**SECURED) as it:
        for topic in ("orders", "%DLQ%billing"):
            await topics.create(it.admin, topic, TopicSettings(read_queues=1, write_queues=1))
        await groups.create(it.admin, "billing", {})
        await it.settle()
        config = with_settings_of(it.client_config, ProducerConfig)
        async with Producer(it.namesrv, config=config) as producer:
            for topic in ("orders", "%DLQ%billing") * 2:
                await producer.send(topic, b"x", keys=("k",))
        yield it


def fail(it: Site, monkeypatch: pytest.MonkeyPatch, how: str, *numbers: int) -> None:
    call = ChannelPool.call
    failing = {it.running.broker_addrs[number] for number in numbers}

    async def failing_call(pool: ChannelPool, address: str, *rest: Any, **more: Any) -> Any:
        if address in failing:
            raise FAILURES[how]
        return await call(pool, address, *rest, **more)

    monkeypatch.setattr(ChannelPool, "call", failing_call)


def test_every_page_is_walked_or_asks_no_broker() -> None:
    pages = {r.path for module in PAGES for r in module.ROUTES if "GET" in (r.methods or {"GET"})}
    assert {*ADDRESSES} | WITHOUT_BROKERS == pages


@pytest.mark.parametrize("how", FAILURES)
async def test_a_page_gives_the_reason_when_every_broker_fails(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with filled() as it:
        fail(it, monkeypatch, how, 0, 1)
        await it.browser.dashboard.sampler.step()
        for path in ADDRESSES.values():
            for headers in ({}, JSON):
                text = (await it.browser.get(path, **headers)).text
                assert str(FAILURES[how]) in text, (path, text)
                assert "There are no problems" not in text


@pytest.mark.parametrize("how", FAILURES)
async def test_a_page_says_which_part_is_missing(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async with filled() as it:
        fail(it, monkeypatch, how, 1)
        await it.browser.dashboard.sampler.step()
        for route in sorted(PARTS):
            for headers in ({}, JSON):
                text = (await it.browser.get(ADDRESSES[route], **headers)).text
                assert "broker-b" in text, (route, text)
                assert str(FAILURES[how]) in text, (route, text)


async def test_numbers_that_no_broker_tells_are_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor who may list groups and topics, and may not look at them."""
    refused = (GetConsumeStats, GetConnections, GetTopicStats, GetGroupsOfTopic)
    call = ChannelPool.call

    async def refusing_call(pool: ChannelPool, address: str, one: Any, *rest: Any) -> Any:
        if isinstance(one, refused):
            raise FAILURES["refuses"]
        return await call(pool, address, one, *rest)

    async with filled() as it:
        monkeypatch.setattr(ChannelPool, "call", refusing_call)
        await it.browser.dashboard.sampler.step()
        group = (await it.browser.facts("/groups/billing"))["group"]
        assert (group["members"], group["lag"], group["dead_letters"]) == (None, None, None)
        topic = (await it.browser.facts("/topics/orders"))["topic"]
        assert (topic["messages"], topic["groups"]) == (None, None)
        (letters,) = (await it.browser.facts("/dead-letters"))["rows"]
        assert letters["total"] is None
        overview = await it.browser.facts("/")
        assert (overview["lag"], overview["messages"]) == (None, None)
        for path in ("/", "/groups", "/groups/billing", "/topics", "/topics/orders"):
            html = (await it.browser.text(path)).replace('title="requests that wait">0<', "")
            assert not re.search(r'<td[^>]* class="n"[^>]*>0</td>', html), path
            assert "no member" not in await it.browser.text(path)
        deleted = await it.browser.post("/groups/billing/delete", {"typed_name": "billing"})
        assert "may have members" in deleted.text
