"""A search finds the first message that matches, through restarts, failures and new queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from roquet.client import CallRefused, Message, Producer, PullConsumer, StoredMessage
from roquet.integrations.airflow.waiting import MessageSearch, message_fields, wait_for
from roquet.model.errors import UsageError
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster

pytestmark = pytest.mark.virtual_time


def virtual_cluster(**settings: Any) -> Cluster:
    return cluster(clock=this_loop().clock, **settings)


@asynccontextmanager
async def searching(running: Cluster, **conditions: Any) -> AsyncIterator["asyncio.Task[Any]"]:
    """A search in an orders topic, as a trigger makes one; cancelled at the end."""
    async with PullConsumer(running.namesrv_addr, group="airflow") as consumer:
        search = MessageSearch(consumer, topic="orders", **{"since_ms": 0, **conditions})
        task = asyncio.create_task(wait_for(search.look, 1))
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def found(running: Cluster, **conditions: Any) -> StoredMessage:
    async with searching(running, **conditions) as task, asyncio.timeout(120):
        message: StoredMessage = await task
        return message


async def test_a_search_finds_what_was_stored_before_and_what_comes_later() -> None:
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        async with searching(running, tags="done") as task:
            await asyncio.sleep(60)  # nobody knows the topic yet
            await producer.send(Message("orders", b"1", tag="begun"))
            await asyncio.sleep(60)
            assert not task.done()
            await producer.send(Message("orders", b"2", tag="done"))
            async with asyncio.timeout(2):
                assert (await task).body == b"2"
        assert (await found(running, tags="done")).body == b"2"


async def test_each_search_finds_the_oldest_match_of_all_queues() -> None:
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        for n in range(20):
            await producer.send("orders", b"%d" % n, keys=[f"A-{n % 10}"])
            await asyncio.sleep(1)
        for n in range(10):
            assert (await found(running, key=f"A-{n}")).body == b"%d" % n


async def test_conditions_hold_together() -> None:
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        for n in range(6):
            color = "red" if n % 2 else "blue"
            await producer.send("orders", b"%d" % n, keys=[f"A-{n}"], properties={"color": color})
            await asyncio.sleep(10)
        last = await found(running, key="A-3")
        assert (last.body, last.keys) == (b"3", ("A-3",))
        assert (await found(running, sql="color = 'red'", since_ms=last.stored_ms + 1)).body == b"5"


async def test_a_search_survives_a_broker_that_restarts() -> None:
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        await producer.send("orders", b"1", keys=["A-1"])
        async with searching(running, key="A-2") as task:
            await asyncio.sleep(5)
            await running.stop_broker(0)
            await asyncio.sleep(120)
            await running.start_broker(0)
            await asyncio.sleep(60)
            await producer.send("orders", b"2", keys=["A-2"])
            async with asyncio.timeout(60):
                assert (await task).body == b"2"


async def test_a_wrong_filter_ends_the_search() -> None:
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        await producer.send("orders", b"1")
        async with searching(running, sql="color = ") as task:
            with pytest.raises((CallRefused, UsageError)):
                await task


def message_of(body: bytes) -> StoredMessage:
    return StoredMessage(
        topic="orders", body=body, queue_id=0, queue_offset=7, position=0, size=100, stored_ms=5
    )


def test_an_event_carries_texts_and_small_bodies_alone() -> None:
    text, raw, large = (
        message_fields(message_of(body)) for body in (b"42 EUR", b"\xff\x00", b"x" * 50_000)
    )
    assert (text["body"], text["body_base64"]) == ("42 EUR", None)
    assert (raw["body"], raw["body_base64"]) == (None, "/wA=")
    assert (large["body"], large["body_base64"], large["body_size"]) == (None, None, 50_000)
