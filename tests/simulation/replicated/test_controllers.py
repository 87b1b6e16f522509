"""Controllers of a group: one of several leads, and another takes over with the same state."""

import asyncio

import pytest
from tests.simulation.replicated.conftest import RunningGroup, running_group

from simulation.replicated.scenario import ControllerStore
from simulation.replicated.servers import HOSTS

pytestmark = pytest.mark.virtual_time


async def healed_in_epoch(running: RunningGroup, epoch: int) -> None:
    async with asyncio.timeout(30):
        while running.servers.group.master_epoch < epoch:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await running.until_in_sync(1, 2, 3)


async def test_another_controller_takes_over_and_elects() -> None:
    async with running_group(store=ControllerStore.ETCD, controllers=3) as running:
        controllers = running.servers.controllers
        first = controllers.leader
        await running.servers.kill_controller(first)
        await asyncio.sleep(7)
        assert controllers.leader != first
        await running.servers.kill(HOSTS[0])
        await running.until_in_sync(2, 3)
        await running.servers.come_back(HOSTS[0])
        await running.servers.come_back(first)
        await healed_in_epoch(running, 2)
        assert running.history.broken == []


async def test_no_master_is_elected_while_the_state_is_lost() -> None:
    async with running_group(store=ControllerStore.ETCD, controllers=2) as running:
        etcd = running.servers.controllers.etcd
        assert etcd is not None
        etcd.lose_data()
        await running.servers.kill(HOSTS[0])
        await asyncio.sleep(10)
        assert running.servers.group.master_epoch == 1
        assert not any(
            mode.role.current.is_active
            for host in HOSTS
            if (mode := running.servers.mode(host)) is not None
        )
        etcd.restore_data()
        await running.servers.come_back(HOSTS[0])
        await healed_in_epoch(running, 2)
        assert running.history.broken == []


@pytest.mark.parametrize("store", ControllerStore)
async def test_a_controller_whose_machine_lost_its_power_has_all_that_it_decided(
    store: ControllerStore,
) -> None:
    async with running_group(store=store) as running:
        controllers, before = running.servers.controllers, running.servers.group
        leader = controllers.leader
        await running.servers.kill_controller(leader, loses_power=True)
        await asyncio.sleep(5)
        await running.servers.come_back(leader)
        await running.servers.kill(HOSTS[0])
        await running.until_in_sync(2, 3)
        assert running.servers.group.master_epoch == before.master_epoch + 1
        assert running.servers.group.set_version > before.set_version
        assert running.history.broken == []


@pytest.mark.parametrize("store", ControllerStore)
async def test_an_operator_has_a_broker_elected_while_a_controller_leads(
    store: ControllerStore,
) -> None:
    async with running_group(store=store) as running:
        controllers = running.servers.controllers
        assert await controllers.elect(2) == 2
        await healed_in_epoch(running, 2)
        assert running.servers.group.master == 2
        assert await controllers.elect(9) is None
        await running.servers.kill_controller(controllers.leader)
        assert await controllers.elect(3) is None
