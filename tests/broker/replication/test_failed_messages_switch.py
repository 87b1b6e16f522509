"""Failed messages across a switch of the master: they come again."""

import asyncio
from random import Random

import pytest
from tests.conversation.failover_group import CLIENT, NAMESRV, group

from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer
from roquet.client.reading.message import InboundMessage
from roquet.model.errors import CallRefused
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize(
    ("timeout_ms", "slave_timeout"), [(3_000, 1_000), (5_000, 1_000), (3_000, 3_000)]
)
@in_virtual_time
async def test_a_message_that_failed_at_a_parted_master_comes_again_at_the_next(
    timeout_ms: int, slave_timeout: int, failures: int
) -> None:
    """The parted master stores it in the retry topic and answers FLUSH_SLAVE_TIMEOUT.

    The second failure is that of a copy that the broker has made.
    """
    async with group(3, slave_timeout=slave_timeout) as running:
        await running.settled(3)
        await running.send("bad")
        config = ConsumerConfig(
            clock=running.loop.clock,
            rng=Random(3),
            client_ip=CLIENT,
            consume_from=ConsumeFrom.FIRST,
            timeout_ms=timeout_ms,
        )
        tries, may_fail = list[int](), asyncio.Event()

        async def handle(message: InboundMessage) -> None:
            tries.append(message.tries)
            if len(tries) == failures:
                await may_fail.wait()
            if len(tries) <= failures:
                raise ValueError("not now")

        async def consume() -> None:
            async with PushConsumer(
                f"{NAMESRV}:9876", group="g", topic="orders", config=config
            ) as consumer:
                await consumer.run(handle)

        consuming = running.hosts.run(CLIENT, consume())
        await running.until(lambda: len(tries) == failures, 30)
        await running.loop.clock.sleep(15_000)  # every broker has the group's retry topic
        number = running.master()
        assert number is not None
        others = [running.host(other) for other in (1, 2, 3) if other != number]
        running.part(number, *others)
        may_fail.set()
        await running.loop.clock.sleep(max(5_000, 4 * slave_timeout))
        await running.kill(number)
        await running.settled(2)
        await running.loop.clock.sleep(120_000)
        consuming.cancel()
        assert len(tries) > failures


def passed_on(topic: str) -> Send:
    """A message as Java's consumers send on one that failed: the copy says that nobody waits."""
    return Send(
        producer_group="CLIENT_INNER_PRODUCER",
        topic=topic,
        default_topic_queue_nums=1,
        queue_id=0,
        born_timestamp=1,
        properties="WAIT\x01false\x02",
        body=b"failed",
    )


@in_virtual_time
async def test_a_failed_message_waits_for_replicas_though_its_copy_says_that_nobody_does() -> None:
    async with group(3, slave_timeout=1_000) as running:
        number = await running.settled(3)
        running.part(number, *[running.host(other) for other in (1, 2, 3) if other != number])
        failed = await running.ask(number, passed_on("%RETRY%g"))
        assert failed.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await running.ask(number, passed_on("orders"))).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_failed_message_is_refused_while_too_few_logs_are_in_sync() -> None:
    async with group(1, min_in_sync_replicas=2) as running:
        await running.until(lambda: running.master() == 1)
        with pytest.raises(CallRefused, match="in-sync"):
            await running.ask(1, passed_on("%RETRY%g"))
