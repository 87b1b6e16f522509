import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from tests.dashboard.conftest import OpenSite, Site
from tests.dashboard.pages.orders_topic import orders, send

from roquet.client.pull import PullConsumer
from roquet.dashboard.app import application
from roquet.dashboard.facts.clients import open_reader
from roquet.dashboard.pages import message_tail
from roquet.dashboard.request_context import VISITOR
from roquet.dashboard.security.sessions import Visitor
from roquet.dashboard.stream_slots import OPENING_MAX, STREAMS_MAX
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_the_page_names_its_stream_and_loads_its_script(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        html = await it.browser.text("/messages/tail?topic=orders&text=a%22b&rate=9")
        assert 'data-stream="/messages/tail/events?topic=orders&amp;text=a%22b&amp;rate=9"' in html
        assert 'src="/static/tail.js"' in html
        assert "tail.js" not in await it.browser.text("/messages/tail")


@pytest.mark.parametrize(
    "query", ["", "topic=orders&tags=a&sql=b", "topic=orders&rate=1000", "topic=%3Cb%3E"]
)
@in_virtual_time
async def test_a_stream_that_cannot_be_is_refused(open_site: OpenSite, query: str) -> None:
    async with orders(open_site) as it:
        response = await it.browser.get(f"/messages/tail/events?{query}")
        assert response.status_code == 400


@in_virtual_time
async def test_an_unknown_topic_ends_the_stream_with_the_reason(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        response = await it.browser.get("/messages/tail/events?topic=order")
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.text.startswith("event: problem\ndata: ")
        assert "no broker has a topic" in response.text


@in_virtual_time
async def test_the_number_of_streams_is_limited(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        streams = it.browser.dashboard.streams
        slots = [streams.take() for _ in range(STREAMS_MAX)]
        for slot in slots:
            slot.__enter__()
        response = await it.browser.get("/messages/tail/events?topic=orders")
        assert response.status_code == 400
        assert "too many live tails" in response.text
        slots[0].__exit__(None, None, None)
        assert not streams.is_full()


def test_an_event_is_one_line_of_json_whatever_is_in_it() -> None:
    event = message_tail.event("tail", {"text": "a\n\ndata: b\r\n"})
    head, data, *rest = event.split(b"\n")
    assert (head, rest) == (b"event: tail", [b"", b""])
    assert msgspec.json.decode(data.removeprefix(b"data: ")) == {"text": "a\n\ndata: b\r\n"}


async def opened(it: Site) -> AsyncGenerator[bytes]:
    """The stream of a tail, of which nothing was read yet."""
    dashboard = it.browser.dashboard
    visitor = Visitor(token="", user=None, client=dashboard.client, admin=dashboard.admin)
    scope = {
        "type": "http",
        "app": application(dashboard),
        VISITOR: visitor,
        "path": "/messages/tail/events",
        "query_string": b"topic=orders",
        "headers": [],
    }
    response = await message_tail.events(Request(scope))
    assert isinstance(response, StreamingResponse)
    return cast("AsyncGenerator[bytes]", response.body_iterator)


@in_virtual_time
async def test_many_tails_at_once_are_opened_in_turn(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = most = 0

    @asynccontextmanager
    async def counted(request: Request) -> AsyncIterator[PullConsumer]:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        await asyncio.sleep(0.01)
        async with open_reader(request) as reader:
            opening -= 1
            yield reader

    monkeypatch.setattr(message_tail, "open_reader", counted)
    async with orders(open_site) as it:
        streams = [await opened(it) for _ in range(20)]
        firsts = await asyncio.gather(*map(anext, streams))
        assert all(b'"rows":[]' in first for first in firsts)
        assert most == OPENING_MAX
        for stream in streams:
            await stream.aclose()


@in_virtual_time
async def test_new_messages_come_as_events(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        stream = await opened(it)
        assert b'"rows":[]' in await anext(stream)
        await it.clock.sleep(100)
        await send(it, b"hello", tag="new")
        event = await anext(stream)
        (row,) = msgspec.json.decode(event.split(b"data: ")[1])["rows"]
        assert (row["preview"], row["tag"]) == ("hello", "new")
        await stream.aclose()
        assert not it.browser.dashboard.streams.is_full()
