"""Hostile text in every place that a page shows: names, ids, keys, bodies, and what is typed."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, address, orders, send

from roquet.client.config import ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.dashboard.app import PAGES
from roquet.model.topic import DataVersion, TopicConfig
from roquet.net.address import split_address
from roquet.net.channel import Channel
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.fastjson import codec

NAME = HOSTILE.replace(" ", "")


async def register_hostile_broker(it: Site) -> Channel:
    """Register a broker, a cluster and a topic with hostile names; the channel keeps them."""
    channel = await Channel.connect(*split_address(it.namesrv), clock=it.clock)
    wrapper = TopicsOfBroker(
        topic_config_table={topic: TopicConfig(topic_name=topic) for topic in (NAME, "any")},
        data_version=DataVersion(),
    )
    await channel.call(
        RegisterBroker(
            broker_name=NAME,
            broker_addr=it.running.broker_addrs[0],
            cluster_name=NAME,
            broker_id=0,
            enable_acting_master=False,
            body=codec.dumps(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)),
        )
    )
    return channel


@asynccontextmanager
async def hostile_site() -> AsyncIterator[tuple[Site, dict[str, str]]]:
    """A site with a hostile member, message and broker, and the message's place."""
    async with orders() as it:
        config = ConsumerConfig(clock=it.clock, instance=HOSTILE)
        async with PushConsumer(it.namesrv, group="billing", topic="orders", config=config):
            place = await send(
                it, HOSTILE.encode(), tag=HOSTILE, keys=(NAME,), properties={NAME: HOSTILE}
            )
            channel = await register_hostile_broker(it)
            await it.clock.sleep(30_000)
            yield it, place
            await channel.close()


def addresses(place: dict[str, str]) -> Iterator[str]:
    """Every page, of what is there and of what has a hostile name."""
    names = {"topics": "orders", "groups": "billing", "brokers": "broker-a"}
    for module in PAGES:
        for route in module.ROUTES:
            if "GET" not in (route.methods or {"GET"}) or route.path.endswith("/events"):
                continue
            for text in (names.get(route.path.split("/")[1], "billing"), NAME):
                path = re.sub(r"{.*?}", quote(text, safe=""), route.path)
                yield address(path, {n: quote(v, safe="") for n, v in place.items()})
                yield f"{path}?" + "&".join(
                    f"{name}={quote(HOSTILE, safe='')}"
                    for name in ("q", "search", "sort", "group", "letter", "user", "part", "next")
                )


@pytest.mark.slow
@in_virtual_time
async def test_no_page_shows_text_of_strangers_as_html() -> None:
    async with hostile_site() as (it, place):
        shown = 0
        for path in addresses(place):
            response = await it.browser.get(path)
            assert response.status_code != 500, path
            if not response.headers["content-type"].startswith("text/html"):
                assert response.headers["x-content-type-options"] == "nosniff"
                continue
            assert not any(mark in response.text for mark in (*MARKS, "<imgsrc=x")), path
            shown += "alert" in response.text
        assert shown > 20
