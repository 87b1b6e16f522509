"""GroupOperator: it has a broker elected only where the one that may lead must not."""

import asyncio

import pytest
from tests.simulation.replicated.conftest import RunningGroup, running_group

from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.group_operator import GroupOperator
from simulation.replicated.servers import HOSTS

pytestmark = pytest.mark.virtual_time


def operator_of(running: RunningGroup) -> GroupOperator:
    prefix = ConfirmedPrefix(running.history)
    return GroupOperator(running.scenario, running.servers, running.history, prefix)


async def test_a_group_that_helps_itself_needs_no_operator() -> None:
    async with running_group() as running:
        operator = operator_of(running)
        living = asyncio.create_task(operator.live())
        await running.servers.lose_power(HOSTS[0])
        await asyncio.sleep(15)
        await running.servers.come_back(HOSTS[0])
        await running.until_in_sync(1, 2, 3)
        assert running.history.operated == set()
        living.cancel()


async def test_a_broker_that_was_elected_while_its_machine_was_lost_is_replaced() -> None:
    async with running_group() as running:
        servers = running.servers
        operator = operator_of(running)
        living = asyncio.create_task(operator.live())
        await servers.kill(HOSTS[2])
        await running.until_in_sync(1, 2)
        await servers.lose_power(HOSTS[1])
        await servers.kill(HOSTS[0])
        await running.until_in_sync(2)
        for host in HOSTS:
            await servers.come_back(host)
        await asyncio.sleep(5)
        assert servers.group.in_sync == {2}, "it must not lead"
        await running.until_in_sync(1, 2, 3)
        assert len(running.history.operated) == 1
        assert servers.group.master == 1
        assert running.history.broken == []
        living.cancel()
