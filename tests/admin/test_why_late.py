import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from roquet.admin import why_late
from roquet.admin.client import AdminClient
from roquet.admin.messages import MessageViewer
from roquet.admin.why_late import GroupAccount
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.errors import NotFound
from roquet.model.names import CLI_GROUP
from roquet.rules.lateness import Happening
from roquet.testing.cluster import Cluster, cluster

TRACED = ProducerConfig(trace=True)
READS = ConsumerConfig(trace=True, consume_from=ConsumeFrom.FIRST, concurrency=1)


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    async with cluster(default_queue_count=1, message_delay_levels=(1_000,) * 18) as running:
        yield running


async def explained(
    running: Cluster, message_id: str, group: str | None = None
) -> list[GroupAccount]:
    async with (
        AdminClient(running.namesrv_addr) as admin,
        MessageViewer(running.namesrv_addr, group=CLI_GROUP) as reader,
    ):
        message, accounts = await why_late.explain(
            admin, reader, message_id, topic="orders", group=group
        )
        assert message.message_id == message_id
        return accounts


def kinds(account: GroupAccount) -> list[Happening]:
    return [event.kind for event in account.events]


async def handle(running: Cluster, count: int, failures: int = 0, pause_s: float = 0) -> None:
    """A group that handles this many messages, and fails first."""
    left = count + failures
    async with PushConsumer(
        running.namesrv_addr, group="billing", topic="orders", config=READS
    ) as consumer:

        async def work(message: ReceivedMessage) -> None:
            nonlocal left, failures
            await asyncio.sleep(pause_s)
            left -= 1
            if not left:
                consumer.stop()
            if failures:
                failures -= 1
                raise ValueError("not yet")

        async with asyncio.timeout(30):
            await consumer.run(work)


async def test_a_message_behind_others_says_how_many_were_ahead_of_it(running: Cluster) -> None:
    async with Producer(running.namesrv_addr, config=TRACED) as producer:
        for number in range(20):
            receipt = await producer.send("orders", b"%d" % number)
    await handle(running, 20, pause_s=0.02)
    (account,) = await explained(running, receipt.message_id)
    assert account.group == "billing"
    assert account.is_finished
    assert kinds(account) == [
        Happening.BORN,
        Happening.SENT,
        Happening.STORED,
        Happening.STARTED,
        Happening.HANDLED,
    ]
    assert account.gaps[0].cause.startswith("it waited in queue 0: 19 messages were ahead of it")


async def test_a_message_that_failed_shows_its_tries(running: Cluster) -> None:
    async with Producer(running.namesrv_addr, config=TRACED) as producer:
        receipt = await producer.send("orders", b"one")
    await handle(running, 1, failures=1)
    (account,) = await explained(running, receipt.message_id)
    seen = kinds(account)
    assert seen[3:] == [
        Happening.STARTED,
        Happening.FAILED,
        Happening.RETRIED,
        Happening.STARTED,
        Happening.HANDLED,
    ]
    assert "retry settings" in account.gaps[0].cause


async def test_a_failed_message_waits_for_its_next_try(running: Cluster) -> None:
    async with Producer(running.namesrv_addr, config=TRACED) as producer:
        receipt = await producer.send("orders", b"one")
    await handle(running, 0, failures=1)
    await asyncio.sleep(0.5)  # traces are found once they are indexed; the next try is later
    (account,) = await explained(running, receipt.message_id)
    assert not account.is_finished
    assert "it failed, and waits for its next try" in [gap.cause for gap in account.gaps]


async def test_a_delayed_message_was_late_by_its_senders_wish(running: Cluster) -> None:
    async with Producer(running.namesrv_addr) as producer:
        receipt = await producer.send("orders", b"one", delay=timedelta(seconds=1))
        levelled = await producer.send("orders", b"two", delay_level=1)
    await asyncio.sleep(2.5)
    for one in (receipt, levelled):
        (account,) = await explained(running, one.message_id)
        assert Happening.SCHEDULED in kinds(account)
        assert account.gaps[0].cause == "it was delayed, as its sender had asked"
        assert account.group is None


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_message_that_is_not_due_says_so_where_the_broker_shows_it(is_shown: bool) -> None:
    async with cluster(default_queue_count=1, read_internal_topics=is_shown) as running:
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("orders", b"one")
            receipt = await producer.send("orders", b"one", delay=timedelta(hours=1))
        if is_shown:
            (account,) = await explained(running, receipt.message_id, "billing")
            assert account.gaps[0].cause == "it is delayed, as its sender has asked"
        else:
            with pytest.raises(NotFound, match="read_internal_topics = true"):
                await explained(running, receipt.message_id, "billing")


async def test_a_message_that_waits_says_what_it_waits_for_and_what_would_tell_more(
    running: Cluster,
) -> None:
    async with Producer(running.namesrv_addr) as producer:
        receipt = await producer.send("orders", b"one")
    (account,) = await explained(running, receipt.message_id, "billing")
    assert not account.is_finished
    causes = [gap.cause for gap in account.gaps]
    assert any(cause.endswith("the group has no member now; it still waits") for cause in causes)
    text = " ".join(account.not_known)
    assert "ConsumerConfig" in text
    assert "ProducerConfig" in text


async def test_progress_past_a_message_without_traces_is_no_time(running: Cluster) -> None:
    plain = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with Producer(running.namesrv_addr) as producer:
        receipt = await producer.send("orders", b"one")
    async with PushConsumer(
        running.namesrv_addr, group="billing", topic="orders", config=plain
    ) as consumer:
        message = await consumer.next(10_000)
        assert message is not None
        await message.ack()
    (account,) = await explained(running, receipt.message_id, "billing")
    assert kinds(account)[-1] is Happening.PASSED


async def test_a_message_that_is_not_there_is_an_error(running: Cluster) -> None:
    async with Producer(running.namesrv_addr) as producer:
        await producer.send("orders", b"one")
    with pytest.raises(NotFound, match="never stored"):
        await explained(running, "7F0000010000ABCD0000000000000000")
