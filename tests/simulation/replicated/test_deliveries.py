"""Clients of deliveries: what brokers promise them is noted, and comes once it is due."""

import asyncio
from random import Random

import pytest
from tests.simulation.replicated.conftest import RunningGroup, running_group

from roquet.testing.clock import this_loop
from simulation.replicated.clients import ReplicatedProducer
from simulation.replicated.deliveries import (
    DELAYS_MAX_MS,
    Course,
    DeferringProducer,
    PopConsumer,
)
from simulation.replicated.delivery_checks import delivered_messages
from simulation.replicated.servers import HOSTS
from simulation.replicated.workload import records_of

pytestmark = pytest.mark.virtual_time


def producer_of(running: RunningGroup) -> DeferringProducer:
    error_ms = running.servers.clock_error_ms
    return DeferringProducer(
        "d", None, running.history, this_loop().clock, lambda: 10, Random(1), error_ms
    )


def delivered(running: RunningGroup) -> dict[str, list[int]]:
    """Times of delivery in ms since the start, by the message's body."""
    clock = this_loop().clock
    records = records_of(running.servers.log_of(running.servers.master))
    messages = delivered_messages(records, clock.now_ms() - clock.monotonic_ms())
    return {body: [*times] for body, times in messages.later.items()}


@pytest.mark.parametrize("course", [Course.LEVEL, Course.DELAY, Course.TIME, Course.COMMIT])
async def test_a_message_comes_once_it_is_due(course: Course) -> None:
    async with running_group() as running:
        assert await producer_of(running).send(course)
        [message] = running.history.deferred.values()
        await asyncio.sleep((message.due_ms - running.history.now_ms()) / 1_000 + 0.5)
        [stored_ms] = delivered(running)[message.body]
        assert message.due_ms <= stored_ms < message.due_ms + 500


async def test_a_message_that_is_rolled_back_never_comes() -> None:
    async with running_group() as running:
        assert await producer_of(running).send(Course.ROLL_BACK)
        await asyncio.sleep(max(DELAYS_MAX_MS) / 1_000)
        assert (running.history.rolled_back, running.history.deferred) == ({"d.1"}, {})
        assert delivered(running) == {}


async def test_what_a_master_has_promised_comes_from_the_next_one() -> None:
    async with running_group() as running:
        producing = asyncio.create_task(producer_of(running).live())
        await asyncio.sleep(2)
        producing.cancel()
        promised = {*running.history.deferred}
        assert len(promised) > 10
        await running.servers.kill(running.servers.master)
        await running.until_in_sync(2, 3)
        await asyncio.sleep(max(DELAYS_MAX_MS) / 1_000 + 1)
        assert promised <= delivered(running).keys()


async def test_nothing_is_promised_that_replicas_do_not_have() -> None:
    async with running_group() as running:
        for other in HOSTS[1:]:
            running.servers.frozen.freeze(other)
        for course in (Course.DELAY, Course.COMMIT):
            assert not await producer_of(running).send(course)
        assert not running.history.deferred
        assert running.history.lines[-1].endswith("once it is committed: not stored everywhere")


async def test_a_delay_by_a_wrong_clock_is_no_promise() -> None:
    async with running_group() as running:
        running.servers.clocks[HOSTS[0]].ahead_ms = 7_200_000
        assert running.servers.clock_error_ms(HOSTS[0]) == 0, "it is not believed yet"
        await asyncio.sleep(15)
        assert running.servers.clock_error_ms(HOSTS[0]) == 7_200_000
        assert await producer_of(running).send(Course.DELAY)
        assert not running.history.deferred
        assert await producer_of(running).send(Course.TIME)
        assert len(running.history.deferred) == 1


async def test_popped_messages_come_until_they_are_handled() -> None:
    async with running_group() as running:
        producer = ReplicatedProducer("p", None, running.history, this_loop().clock, lambda: 10)
        for number in range(40):
            assert await producer.send(f"p.{number}")
        consumer = PopConsumer(running.history, this_loop().clock, Random(1))
        popping = asyncio.create_task(consumer.live())
        await asyncio.sleep(1)
        assert 20 < len(running.history.settled) < 40, "some were popped and forgotten"
        await running.servers.kill(running.servers.master)
        await asyncio.sleep(20)
        popping.cancel()
        assert len(running.history.settled) == 40
