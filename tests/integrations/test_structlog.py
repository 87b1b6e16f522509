from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendReceipt,
)
from roquet.integrations.structlog import log_context, message_log_fields, receipt_log_fields
from roquet.testing.cluster import Cluster, cluster

pytestmark = pytest.mark.virtual_time

log = structlog.get_logger()


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    """The lines logged, with their context variables."""
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as captured:
        yield captured


def config(**settings: Any) -> ConsumerConfig:
    around = [log_context(group="billing", service="shop")]
    return ConsumerConfig(consume_from=ConsumeFrom.FIRST, around=around, **settings)


async def send(running: Cluster, *bodies: bytes) -> list[SendReceipt]:
    async with Producer(running.namesrv_addr) as producer:
        return [await producer.send("orders", body, keys=["A-17"], tag="new") for body in bodies]


async def test_a_handler_logs_the_fields_of_its_message(lines: list[Any]) -> None:
    async with cluster(default_queue_count=1) as running:
        (receipt,) = await send(running, b"x")
        consumer = PushConsumer(
            running.namesrv_addr, group="billing", topic="orders", config=config()
        )

        async def bill(message: ReceivedMessage) -> None:
            if message.tries:
                consumer.stop()
            log.info("billing")
            if not message.tries:
                raise ValueError

        async with consumer:
            await consumer.run(bill)
        log.info("after it")
    fields = {
        "log_level": "info",
        "group": "billing",
        "service": "shop",
        "topic": "orders",
        "message_id": receipt.message_id,
        "key": "A-17",
    }
    first, again, after = lines
    assert first == {**fields, "event": "billing", "queue": "broker-a/0", "offset": 0, "attempt": 1}
    assert {**again, "queue": "", "offset": 0} == {
        **fields, "event": "billing", "queue": "", "offset": 0, "attempt": 2,
    }  # fmt: skip
    assert after == {"event": "after it", "log_level": "info"}


@pytest.mark.virtual_time(False)
async def test_a_handler_in_a_thread_has_them_as_well(lines: list[Any]) -> None:
    async with cluster(default_queue_count=1) as running:
        await send(running, b"x")
        consumer = PopConsumer(
            running.namesrv_addr, group="billing", topic="orders", config=config()
        )

        def bill(message: ReceivedMessage) -> None:
            log.info("billing")
            consumer.stop()

        async with consumer:
            await consumer.run(bill)
    assert [(line["offset"], line["key"]) for line in lines] == [(0, "A-17")]


async def test_a_batch_has_its_topics_and_the_number_of_messages(lines: list[Any]) -> None:
    async with cluster() as running:
        await send(running, b"1", b"2", b"3")
        consumer = PushConsumer(
            running.namesrv_addr, group="billing", topic="orders", config=config()
        )

        async def bill(messages: Sequence[ReceivedMessage]) -> None:
            log.info("billing")
            consumer.stop()

        async with consumer:
            await consumer.run_batch(bill, size=3, wait_ms=60_000)
    assert [(line["topic"], line["messages"]) for line in lines] == [("orders", 3)]


async def test_a_receipt_says_where_the_message_is() -> None:
    async with cluster(default_queue_count=1) as running:
        (receipt,) = await send(running, b"x")
    assert receipt_log_fields(receipt) == {
        "topic": "orders",
        "queue": "broker-a/0",
        "offset": 0,
        "message_id": receipt.message_id,
        "status": "SEND_OK",
    }


def test_a_message_to_send_has_the_fields_that_it_has_yet() -> None:
    assert message_log_fields(Message("orders", b"x", tag="new")) == {
        "topic": "orders",
        "tag": "new",
    }
    assert message_log_fields(Message("orders", b"x", keys=("a", "b")))["key"] == "a"
