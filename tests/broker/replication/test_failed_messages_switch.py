"""Failed messages across a switch of the master: they come again."""

import asyncio
from random import Random

import pytest
from tests.conversation.failover_group import CLIENT, NAMESRV, group

from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer
from roquet.client.reading.message import InboundMessage
from roquet.testing.clock import in_virtual_time


@pytest.mark.parametrize("timeout_ms", [3_000, 5_000])
@in_virtual_time
async def test_a_message_that_failed_at_a_parted_master_comes_again_at_the_next(
    timeout_ms: int,
) -> None:
    """The parted master stores it in the retry topic and answers FLUSH_SLAVE_TIMEOUT."""
    async with group(3, slave_timeout=1_000) as running:
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
            if len(tries) == 1:
                await may_fail.wait()
                raise ValueError("not now")

        async def consume() -> None:
            async with PushConsumer(
                f"{NAMESRV}:9876", group="g", topic="orders", config=config
            ) as consumer:
                await consumer.run(handle)

        consuming = running.hosts.run(CLIENT, consume())
        await running.until(lambda: bool(tries), 30)
        await running.loop.clock.sleep(15_000)  # every broker has the group's retry topic
        number = running.master()
        assert number is not None
        others = [running.host(other) for other in (1, 2, 3) if other != number]
        running.part(number, *others)
        may_fail.set()
        await running.loop.clock.sleep(5_000)
        await running.kill(number)
        await running.settled(2)
        await running.loop.clock.sleep(120_000)
        consuming.cancel()
        assert len(tries) > 1
