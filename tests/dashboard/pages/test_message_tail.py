import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import cast

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from tests.admin.conftest import ClusterWithAdmin, open_cluster
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import orders, send

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.dashboard.app import application
from roquet.dashboard.dashboard import OPENING_MAX, STREAMS_MAX
from roquet.dashboard.facts.messages import MessageFilter
from roquet.dashboard.pages import message_tail
from roquet.dashboard.pages.message_tail import MessageTail, TailUpdate
from roquet.dashboard.request_context import VISITOR, open_reader
from roquet.dashboard.security.sessions import Visitor
from roquet.model.errors import RoquetError, UsageError
from roquet.model.message import Message

pytestmark = pytest.mark.virtual_time


async def test_the_page_names_its_stream_and_loads_its_script(orders_site: Site) -> None:
    html = await orders_site.browser.text("/messages/tail?topic=orders&text=a%22b&rate=9")
    assert 'data-stream="/messages/tail/events?topic=orders&amp;text=a%22b&amp;rate=9"' in html
    assert 'src="/static/tail.js"' in html
    assert "tail.js" not in await orders_site.browser.text("/messages/tail")


@pytest.mark.parametrize(
    "query", ["", "topic=orders&tags=a&sql=b", "topic=orders&rate=1000", "topic=%3Cb%3E"]
)
async def test_a_stream_that_cannot_be_is_refused(orders_site: Site, query: str) -> None:
    response = await orders_site.browser.get(f"/messages/tail/events?{query}")
    assert response.status_code == 400


async def test_an_unknown_topic_ends_the_stream_with_the_reason(orders_site: Site) -> None:
    response = await orders_site.browser.get("/messages/tail/events?topic=order")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.startswith("event: problem\ndata: ")
    assert "no broker has a topic" in response.text


async def test_the_number_of_streams_is_limited(orders_site: Site) -> None:
    streams = orders_site.browser.dashboard.streams
    slots = [streams.take() for _ in range(STREAMS_MAX)]
    for slot in slots:
        slot.__enter__()
    response = await orders_site.browser.get("/messages/tail/events?topic=orders")
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


async def test_many_tails_at_once_are_opened_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
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
    async with orders() as it:
        streams = [await opened(it) for _ in range(20)]
        firsts = await asyncio.gather(*map(anext, streams))
        assert all(b'"rows":[]' in first for first in firsts)
        assert most == OPENING_MAX
        for stream in streams:
            await stream.aclose()


async def test_new_messages_come_as_events(orders_site: Site) -> None:
    stream = await opened(orders_site)
    assert b'"rows":[]' in await anext(stream)
    await orders_site.clock.sleep(100)
    await send(orders_site, b"hello", tag="new")
    event = await anext(stream)
    (row,) = msgspec.json.decode(event.split(b"data: ")[1])["rows"]
    assert (row["preview"], row["tag"]) == ("hello", "new")
    await stream.aclose()
    assert not orders_site.browser.dashboard.streams.is_full()


@asynccontextmanager
async def tailed() -> AsyncIterator[tuple[ClusterWithAdmin, PullConsumer, Producer]]:
    """A topic with a queue on each of two brokers, and one message that is there already."""
    async with open_cluster() as it:
        await topics.create(it.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
        await it.settle()
        config = ConsumerConfig(clock=it.clock)
        async with (
            PullConsumer(it.namesrv, group="tails", config=config) as reader,
            Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer,
        ):
            await producer.send("orders", b"old")
            yield it, reader, producer


ALL = MessageFilter()


@asynccontextmanager
async def running_tail(
    wanted: MessageFilter = ALL, **settings: int
) -> AsyncIterator[tuple[ClusterWithAdmin, Producer, AsyncIterator[TailUpdate]]]:
    """A tail that has begun, and whose first update shows nothing."""
    async with tailed() as (it, reader, producer):
        tail = MessageTail(reader, "orders", wanted, (), clock=it.clock, **settings)
        async with aclosing(tail.updates()) as updates:
            first = await anext(updates)
            assert (first.messages, first.seen) == ([], 0)
            await asyncio.sleep(0.1)
            yield it, producer, updates


async def until(updates: AsyncIterator[TailUpdate], shown: int) -> list[TailUpdate]:
    """Updates until so many messages were shown."""
    seen = []
    async for update in updates:
        seen.append(update)
        if update.shown >= shown:
            break
    return seen


async def test_a_tail_shows_what_comes_after_it_began() -> None:
    async with running_tail() as (_, producer, updates):
        for number in range(4):
            await producer.send("orders", b"%d" % number)
        seen = await until(updates, 4)
        bodies = [message.body for update in seen for message in update.messages]
        assert sorted(bodies) == [b"0", b"1", b"2", b"3"]
        assert seen[-1].jumped == 0


async def test_a_tail_shows_so_many_a_second_and_counts_the_others() -> None:
    async with running_tail(rate=20) as (cluster, producer, updates):
        await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(100)))
        begin_ms = cluster.clock.monotonic_ms()
        shown = 0
        async for update in updates:
            assert len(update.messages) <= 5  # in a quarter of a second
            shown += len(update.messages)
            if update.matched == 100:
                break
        seconds = (cluster.clock.monotonic_ms() - begin_ms) / 1000
        assert shown <= 20 * (seconds + 0.25)
        assert update.matched - update.shown >= 80


@pytest.mark.parametrize("wanted", [MessageFilter(tags="new"), MessageFilter(key="k")])
async def test_a_tail_leaves_out_what_does_not_match(wanted: MessageFilter) -> None:
    async with running_tail(wanted) as (_, producer, updates):
        await producer.send("orders", b"other", tag="paid")
        await producer.send("orders", b"wanted", tag="new", keys=("k",))
        seen = await until(updates, 1)
        assert [m.body for update in seen for m in update.messages] == [b"wanted"]


async def test_a_tail_far_behind_jumps_to_the_end() -> None:
    async with running_tail() as (_, producer, updates):
        for _ in range(4):
            await producer.send_batch([Message("orders", b"x")] * 2_000)
        async for update in updates:
            if update.jumped:
                break
        assert update.seen + update.jumped <= 8_000
        assert update.shown <= 40


@pytest.mark.parametrize(
    ("topic", "wanted", "error"),
    [
        ("order", MessageFilter(), "no broker has a topic"),
        ("orders", MessageFilter(sql="amount >"), "amount"),
        ("orders", MessageFilter(sql="a > 1", tags="x"), "not by both"),
    ],
)
async def test_a_tail_that_cannot_begin_says_why(
    topic: str, wanted: MessageFilter, error: str
) -> None:
    async with tailed() as (it, reader, _):
        with pytest.raises(RoquetError, match=error):
            await anext(MessageTail(reader, topic, wanted, (), clock=it.clock).updates())
    with pytest.raises(UsageError, match="may hold only"):
        MessageTail(reader, "<script>", wanted, ())


async def test_a_tail_outlives_a_broker_that_goes_away() -> None:
    async with running_tail() as (cluster, producer, updates):
        await cluster.running.stop_broker(0)
        problems = []
        async for update in updates:
            problems += [update.problem] if update.problem else []
            if problems:
                break
        assert problems[0].startswith("orders@broker-a:0: ")
        await cluster.clock.sleep(5_000)
        for _ in range(5):
            await producer.send("orders", b"from the other broker")
        assert await until(updates, 1)
