"""Failed messages: sixteen tries, each later than the one before, and then the dead letters."""

import asyncio
from pathlib import Path

from tests.conversation.conftest import ask, held, started

from roquet.broker.app import BrokerServer
from roquet.model.topic import SubscriptionGroup
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.testing.clock import this_loop
from roquet.wire.calls.send import Send, SendBack
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record

QUICK = tuple(delay_ms // 60 for delay_ms in DEFAULT_LEVELS)
"""Minutes as seconds: the longest level waits two minutes."""
RETRY = "%RETRY%billing"
DEAD = "%DLQ%billing"


async def first(server: BrokerServer, properties: str = "TAGS\x01red\x02") -> Record:
    call = Send(
        producer_group="pg", topic="orders", queue_id=0, born_timestamp=1,
        properties=properties, body=b"4711",
    )  # fmt: skip
    await ask(server, call)
    return held(server, "orders")[-1]


async def fail(server: BrokerServer, record: Record, level: int = 0) -> None:
    await ask(server, SendBack(offset=record.position, group="billing", delay_level=level))


async def test_a_message_that_always_fails_becomes_a_dead_letter_after_sixteen_retries() -> None:
    async with started(message_delay_levels=QUICK) as server:
        failed = await first(server)
        for tries, wait_ms in enumerate(QUICK[2:], 1):
            begun = this_loop().clock.now_ms()
            await fail(server, failed)
            await asyncio.sleep(wait_ms / 1_000 - 0.02)
            assert len(held(server, RETRY)) == tries - 1
            await asyncio.sleep(0.1)
            failed = held(server, RETRY)[-1]
            assert failed.reconsume_times == tries
            assert 0 <= failed.stored_ms - begun - wait_ms < 50
        assert held(server, DEAD) == []
        await fail(server, failed)
        (dead,) = held(server, DEAD)
        assert len(held(server, RETRY)) == 16
        properties = decode_properties(dead.properties)
        assert (dead.body, properties["TAGS"]) == (b"4711", "red")
        assert properties["DLQ_ORIGIN_TOPIC"] == properties["RETRY_TOPIC"] == "orders"
        assert properties["DLQ_ORIGIN_MESSAGE_ID"] == properties["UNIQ_KEY"]


async def test_a_group_may_have_fewer_tries() -> None:
    async with started() as server:
        group = SubscriptionGroup(group_name="billing", retry_max_times=1)
        server.broker.tables.groups.put(group, 0)
        await fail(server, await first(server))
        await asyncio.sleep(11)
        await fail(server, held(server, RETRY)[0])
        assert len(held(server, DEAD)) == 1


async def test_the_original_message_id_is_kept_through_all_retries() -> None:
    async with started() as server:
        failed = await first(server)
        await fail(server, failed)
        await asyncio.sleep(11)
        (again,) = held(server, RETRY)
        await fail(server, again, level=-1)
        (dead,) = held(server, DEAD)
        origin = server.broker.log.ingest.message_id(failed.position)
        for record in (again, dead):
            assert decode_properties(record.properties)["ORIGIN_MESSAGE_ID"] == origin


async def test_a_message_that_was_itself_delayed_is_retried_like_any_other() -> None:
    async with started() as server:
        await ask(
            server,
            Send(
                producer_group="pg", topic="orders", queue_id=0, born_timestamp=1,
                properties="DELAY\x011\x02", body=b"later",
            ),
        )  # fmt: skip
        await asyncio.sleep(2)
        await fail(server, held(server, "orders")[0])
        await asyncio.sleep(11)
        assert [record.body for record in held(server, RETRY)] == [b"later"]


async def test_a_consumer_that_could_not_send_back_may_send_by_itself() -> None:
    async with started(message_delay_levels=QUICK) as server:
        for times, topic in ((3, RETRY), (17, DEAD)):
            text = f"DELAY\x01{3 + times}\x02RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01ID\x02"
            call = Send(
                producer_group="CLIENT_INNER_PRODUCER", topic=RETRY, queue_id=0, born_timestamp=1,
                properties=text, body=b"4711", reconsume_times=times, max_reconsume_times=16,
            )  # fmt: skip
            assert (await ask(server, call)).code == 0
            await asyncio.sleep(2.2)
            (found,) = held(server, topic)
            assert found.reconsume_times == times
            assert decode_properties(found.properties)["ORIGIN_MESSAGE_ID"] == "ID"


async def test_a_kill_after_the_answer_loses_no_retry() -> None:
    files, directory = MemoryFiles(), Path("/held")
    async with started(store_dir=directory, files=files) as server:
        await fail(server, await first(server))
        copy = files.copy()
    async with started(store_dir=directory, files=copy) as server:
        await asyncio.sleep(11)
        assert [record.body for record in held(server, RETRY)] == [b"4711"]
        assert server.broker.tables.topics.get(RETRY) is not None
