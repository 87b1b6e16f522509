"""The topic of orders that pages of messages are tested with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.dashboard.conftest import Site, open_site

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}'
"""Text that would be a script, an image or a template wherever it is not escaped."""

MARKS = ("<script>alert", "<img src=x")
"""Parts of it that a page must not have."""


@asynccontextmanager
async def orders(*masks: str) -> AsyncIterator[Site]:
    async with open_site({"masks": masks}) as it:
        await topics.create(it.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
        await it.settle()
        yield it


async def send(it: Site, body: bytes, **fields: Any) -> dict[str, str]:
    """Send a message; returns the fields of its place."""
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        receipt = await producer.send("orders", body, **fields)
    queue = receipt.queue
    return {
        "topic": "orders",
        "broker": queue.broker_name,
        "queue": str(queue.queue_id),
        "offset": str(receipt.queue_offset),
    }


def address(path: str, fields: dict[str, str]) -> str:
    return path + "?" + "&".join(f"{name}={value}" for name, value in fields.items())
