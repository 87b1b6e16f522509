"""Servers of a replicated group: they get their ids, die, and come back with their files."""

import asyncio

import pytest
from tests.simulation.replicated.conftest import running_group

from simulation.replicated.scenario import ControllerStore
from simulation.replicated.servers import HOSTS, STORE_DIR, host_of

pytestmark = pytest.mark.virtual_time


async def test_brokers_get_their_numbers_as_ids_and_the_first_one_leads() -> None:
    async with running_group() as running:
        group = running.servers.group
        addresses = {key: replica.address for key, replica in group.replicas.items()}
        assert addresses == {number: f"{host_of(number)}:10911" for number in (1, 2, 3)}
        assert running.servers.master == HOSTS[0]
        assert not running.servers.down


async def test_a_learner_is_not_in_the_set() -> None:
    async with running_group(has_learner=True) as running:
        await asyncio.sleep(5)
        assert running.servers.group.in_sync == {1, 2}


async def test_a_killed_master_is_replaced_and_comes_back_with_its_files() -> None:
    async with running_group() as running:
        servers = running.servers
        before = servers.files[HOSTS[0]].read(STORE_DIR / "brokerIdentity")
        await servers.kill(HOSTS[0])
        assert servers.mode(HOSTS[0]) is None
        assert servers.down == {HOSTS[0]: None}
        await running.until_in_sync(2, 3)
        await servers.come_back(HOSTS[0])
        await running.until_in_sync(1, 2, 3)
        assert servers.files[HOSTS[0]].read(STORE_DIR / "brokerIdentity") == before
        assert servers.master != HOSTS[0]
        assert servers.log_of(HOSTS[0]) == servers.log_of(HOSTS[1])
        assert [change.leads for change in running.history.roles].count(True) >= 1


async def test_a_machine_without_power_says_nothing_and_boots_anew() -> None:
    async with running_group() as running:
        await running.servers.lose_power(HOSTS[2])
        await running.until_in_sync(1, 2)
        await running.servers.come_back(HOSTS[2])
        mode = running.servers.mode(HOSTS[2])
        assert mode is not None
        assert not mode.transitions.may_be_elected
        await running.until_in_sync(1, 2, 3)


async def test_a_broker_that_stops_in_good_order_hands_its_role_over() -> None:
    async with running_group() as running:
        await running.servers.stop(HOSTS[0])
        await running.until_in_sync(2, 3)
        assert "abort" not in running.servers.files[HOSTS[0]].list(STORE_DIR)


@pytest.mark.parametrize("store", ControllerStore)
async def test_a_controller_comes_back_with_its_state(store: ControllerStore) -> None:
    async with running_group(store=store) as running:
        group, leader = running.servers.group, running.servers.controllers.leader
        await running.servers.kill_controller(leader)
        assert leader in running.servers.down
        await asyncio.sleep(1)
        await running.servers.come_back(leader)
        await asyncio.sleep(5)
        assert running.servers.group == group
        await running.servers.kill(HOSTS[0])
        await running.until_in_sync(2, 3)


async def test_a_broker_that_has_no_space_is_started_again_until_it_has() -> None:
    async with running_group() as running:
        servers = running.servers
        await servers.lose_power(HOSTS[1])
        servers.files[HOSTS[1]].is_full = True
        returning = asyncio.create_task(servers.come_back(HOSTS[1]))
        await asyncio.sleep(3)
        assert HOSTS[1] in servers.down or not returning.done()
        servers.files[HOSTS[1]].is_full = False
        await returning
        await running.until_in_sync(1, 2, 3)
        assert running.history.broken == []


async def test_a_log_is_read_from_any_position_on() -> None:
    async with running_group() as running:
        whole = running.servers.log_of(HOSTS[0])
        assert running.servers.log_of(HOSTS[0], 100) == whole[100:]
        assert running.servers.log_of(HOSTS[0], len(whole) + 1) == b""


async def test_a_server_that_cannot_start_is_a_finding() -> None:
    async with running_group() as running:
        await running.servers.kill(HOSTS[1])
        running.servers.files[HOSTS[1]].replace(STORE_DIR / "brokerIdentity", b"other#name#9")
        await running.servers.come_back(HOSTS[1])
        (finding,) = running.history.broken
        assert finding.startswith("start: 10.0.1.2 cannot be started: ConfigError")
