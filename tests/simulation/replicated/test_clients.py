"""Thin clients: producers note what is acknowledged, readers what they get."""

import asyncio
from random import Random

import pytest
from tests.simulation.replicated.conftest import RunningGroup, running_group

from roquet.model.errors import CallError
from roquet.testing.clock import this_loop
from roquet.wire.calls.admin.stats import GetHaStatus
from simulation.replicated.clients import (
    TOPIC,
    BrokerCaller,
    OffsetReader,
    ReplicatedProducer,
)
from simulation.replicated.servers import HOSTS

pytestmark = pytest.mark.virtual_time


def producer_of(running: RunningGroup, loyal: str | None = None) -> ReplicatedProducer:
    return ReplicatedProducer("p", loyal, running.history, this_loop().clock, lambda: 10)


async def test_a_producer_finds_the_master_and_notes_what_it_acknowledges() -> None:
    async with running_group() as running:
        await running.servers.kill(HOSTS[0])
        await running.until_in_sync(2, 3)
        sending = asyncio.create_task(producer_of(running).live())
        await asyncio.sleep(5)
        sending.cancel()
        assert len(running.history.offsets) > 20
        assert {message.host for message in running.history.offsets} == {running.servers.master}
        places = {(message.queue_id, message.offset) for message in running.history.offsets}
        assert len(places) == len(running.history.offsets)


async def test_a_loyal_producer_sends_to_one_broker_whatever_it_is() -> None:
    async with running_group() as running:
        loyal = producer_of(running, HOSTS[1])
        for number in range(3):
            assert not await loyal.send(f"p.{number}")
        assert running.history.offsets == []
        await running.servers.kill(HOSTS[1])
        assert not await loyal.send("p.3")


async def test_a_message_that_is_not_replicated_in_time_is_not_acknowledged() -> None:
    async with running_group() as running:
        for other in HOSTS[1:]:
            running.servers.frozen.freeze(other)
        assert not await producer_of(running).send("p.0")
        assert running.history.offsets == []
        assert running.history.lines[-1].endswith("p.0 at 10.0.1.1: code 12")


async def test_a_reader_notes_each_message_with_its_place() -> None:
    async with running_group() as running:
        producer = producer_of(running)
        for number in range(4):
            assert await producer.send(f"p.{number}")
        readers = [
            OffsetReader(host, running.history, this_loop().clock, Random(1)) for host in HOSTS
        ]
        reading = [asyncio.create_task(reader.live()) for reader in readers]
        await asyncio.sleep(20)  # replicas get the topic with the next copy of the tables
        for task in reading:
            task.cancel()
        told = {(each.body, each.queue_id, each.offset) for each in running.history.offsets}
        for host in HOSTS:
            seen = [each for each in running.history.seen if each.host == host]
            assert {(each.body, each.queue_id, each.offset) for each in seen} == told
            assert len(seen) == 4, "each is read once"
        assert TOPIC in running.servers.brokers[HOSTS[0]].broker.log.store.topics()


async def test_a_caller_connects_again_after_it_has_hung_up() -> None:
    async with running_group() as running:
        caller = BrokerCaller(this_loop().clock)
        assert (await caller.call(HOSTS[0], GetHaStatus(), 1_000)).code == 0
        caller.hang_up(HOSTS[0])
        caller.hang_up(HOSTS[0])
        assert (await caller.call(HOSTS[0], GetHaStatus(), 1_000)).code == 0
        running.servers.frozen.freeze(HOSTS[0])
        with pytest.raises(CallError):
            await caller.call(HOSTS[0], GetHaStatus(), 1_000)
