"""Tests of a service against a broker that lives in the test's own process.

    pip install pytest
    pytest examples/test_billing.py

The last test takes ten minutes of virtual time, and about one second.
"""

from datetime import timedelta

import pytest

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage
from roquet.testing.clock import in_virtual_time
from roquet.testing.cluster import BlockingCluster, cluster

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


async def bill(producer: Producer, message: ReceivedMessage) -> None:
    """The service: an order becomes a bill."""
    await producer.send("Bills", b"bill for " + message.body, keys=message.keys)


async def test_an_order_becomes_a_bill(roquet_cluster: BlockingCluster) -> None:
    address = roquet_cluster.namesrv_addr
    async with Producer(address) as producer:
        await producer.send("Orders", b"42 EUR", keys=["A-17"])
        async with PushConsumer(address, group="billing", topic="Orders", config=FIRST) as orders:
            (order,) = await orders.fetch(1)
            await bill(producer, order)
            await order.ack()
        async with PushConsumer(address, group="check", topic="Bills", config=FIRST) as bills:
            (made,) = await bills.fetch(1)
    assert (made.body, made.key) == (b"bill for 42 EUR", "A-17")


async def test_a_broker_that_goes_away_is_an_error(roquet_cluster: BlockingCluster) -> None:
    async with Producer(roquet_cluster.namesrv_addr) as producer:
        await producer.send("Orders", b"1 EUR")
        roquet_cluster.stop_broker(0)
        with pytest.raises(Exception, match=r"broker-a|Orders"):
            await producer.send("Orders", b"2 EUR", timeout_ms=500)


@in_virtual_time
async def test_a_reminder_comes_ten_minutes_later() -> None:
    async with cluster() as running, Producer(running.namesrv_addr) as producer:
        await producer.send("Reminders", b"pay A-17", delay=timedelta(minutes=10))
        async with PushConsumer(
            running.namesrv_addr, group="reminding", topic="Reminders", config=FIRST
        ) as reminders:
            assert await reminders.next(timeout_ms=590_000) is None
            reminder = await reminders.next(timeout_ms=20_000)
    assert reminder is not None
    assert reminder.body == b"pay A-17"
