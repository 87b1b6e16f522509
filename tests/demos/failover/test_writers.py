import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from demos.failover.writers import FlightWriters
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import ConnectFailed
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.testing.cluster import cluster
from roquet.wire.records.message_id import offset_message_id

FAST = 100_000
"""Flights a second: as fast as it goes."""


def flights(count: int) -> Iterator[Message]:
    for row in range(count):
        aircraft = f"N{row % 5}" if row % 7 else None
        yield Message("flights", b"x", order_key=aircraft, properties={"row": str(row)})


class ScriptedProducer:
    """Answers each send with the next of a list: who acknowledges, a status, or an error."""

    def __init__(self, *answers: int | SendStatus | Exception) -> None:
        self._answers = list(answers)
        self.sent: list[int] = []

    async def send(self, message: Message) -> SendReceipt:
        answer = self._answers.pop(0)
        self.sent.append(int(message.properties["row"]))
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        port = answer if isinstance(answer, int) else 1
        return SendReceipt(
            status=SendStatus.SEND_OK if isinstance(answer, int) else answer,
            message_id="",
            offset_message_id=offset_message_id(bytes((127, 0, 0, 1)) + port.to_bytes(4, "big"), 0),
            queue=MessageQueue("flights", "broker-a", 3),
            queue_offset=len(self.sent),
        )


def scripted(*answers: int | SendStatus | Exception) -> tuple[FlightWriters, ScriptedProducer]:
    producer: Any = ScriptedProducer(*answers)
    return FlightWriters(producer, {1: "one", 2: "two"}, lambda: 0), producer


async def test_every_flight_is_acknowledged_once_and_in_the_order_of_its_aircraft() -> None:
    async with cluster(brokers=1) as running:
        config = ProducerConfig(send_timeout_ms=30_000)
        async with Producer(running.namesrv_addr, config=config) as producer:
            port = running.brokers[0].port
            writers = FlightWriters(producer, {port: "broker-1"}, lambda: 5)
            await writers.run(flights(60), FAST)
    acknowledged = writers.acknowledged
    assert sorted(one.row for one in acknowledged) == list(range(60))
    assert {one.broker for one in acknowledged} == {"broker-1"}
    assert len({(one.queue_id, one.offset) for one in acknowledged}) == 60
    for aircraft in range(5):
        rows = [one.row for one in acknowledged if one.row % 5 == aircraft and one.row % 7]
        assert rows == sorted(rows)
    assert (len(writers.arrived_ms), writers.failures) == (60, 0)


async def test_a_flight_is_sent_until_it_is_acknowledged_in_full() -> None:
    refused = ConnectFailed("the master is away")
    writers, producer = scripted(refused, SendStatus.FLUSH_SLAVE_TIMEOUT, 2)
    await writers.run(flights(1), FAST)
    assert producer.sent == [0, 0, 0]
    assert writers.failures == 2
    (one,) = writers.acknowledged
    assert (one.row, one.broker, one.queue_id, one.offset) == (0, "two", 3, 3)


async def test_writers_that_are_stopped_send_what_has_come() -> None:
    writers, producer = scripted(*[1] * 100)
    running = asyncio.create_task(writers.run(flights(100), 100))
    while not writers.arrived_ms:  # noqa: ASYNC110
        await asyncio.sleep(0)
    writers.stop()
    await running
    assert 0 < len(writers.arrived_ms) < 100
    assert len(writers.acknowledged) == len(writers.arrived_ms) == len(producer.sent)


async def test_the_first_acknowledgement_of_another_broker_is_waited_for() -> None:
    writers, _ = scripted(1, 1, 2)
    waiting = asyncio.create_task(writers.acknowledged_by_others("one", 0))
    await writers.run(flights(3), FAST)
    first = await waiting
    assert first.broker == "two"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writers.acknowledged_by_others("one", 3), 0)
