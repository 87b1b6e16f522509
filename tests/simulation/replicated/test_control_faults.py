"""Faults of controllers and etcd: each happens to the server that is meant, and ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.replicated.conftest import RunningGroup, running_group

from roquet.testing.clock import this_loop
from simulation.replicated.control_faults import ControlFaults
from simulation.replicated.etcd_cluster import ETCD_HOSTS, EtcdCluster
from simulation.replicated.scenario import (
    OF_ETCD,
    ControllerStore,
    PlannedFault,
    ReplicaFault,
)

pytestmark = pytest.mark.virtual_time


class Ends:
    """Ends of faults, for the test to call."""

    def __init__(self) -> None:
        self.all: list[Callable[[], Any]] = []

    def later(self, _length_ms: int, end: Callable[[], Any]) -> bool:
        self.all.append(end)
        return True

    async def call(self) -> None:
        while self.all:
            result = self.all.pop(0)()
            if result is not None:
                await result


def etcd_of(running: RunningGroup) -> EtcdCluster:
    etcd = running.servers.controllers.etcd
    assert etcd is not None
    return etcd


async def happens(faults: ControlFaults, fault: ReplicaFault, other: int = 1) -> bool:
    planned = PlannedFault(at_ms=0, fault=fault, broker=2, other=other, length_ms=900)
    return await faults.acts[fault]("10.0.1.2", planned)


async def test_the_leading_controller_is_chosen_or_the_one_after_it() -> None:
    async with running_group(store=ControllerStore.ETCD, controllers=3) as running:
        faults = ControlFaults(running.servers, this_loop(), Ends().later)
        hosts, leader = running.servers.controllers.hosts, running.servers.controllers.leader
        assert faults.controller(1) == leader
        assert faults.controller(2) == hosts[(hosts.index(leader) + 1) % 3]


async def test_an_operator_has_another_member_lead_if_there_is_one() -> None:
    async with running_group() as running:
        ends = Ends()
        faults = ControlFaults(running.servers, this_loop(), ends.later)
        before = running.servers.group
        assert await happens(faults, ReplicaFault.HAND_OVER)
        await ends.call()
        assert running.servers.group.master_epoch == before.master_epoch + 1
        assert running.servers.group.master in before.in_sync - {before.master}
        assert not await happens(faults, ReplicaFault.HAND_OVER), "the set is the master alone"


async def test_faults_of_etcd_take_effect_and_end() -> None:
    async with running_group(store=ControllerStore.ETCD, controllers=2) as running:
        ends, etcd = Ends(), etcd_of(running)
        faults = ControlFaults(running.servers, this_loop(), ends.later)
        assert await happens(faults, ReplicaFault.ETCD_STOP)
        assert etcd.dead == {*ETCD_HOSTS}
        assert not await happens(faults, ReplicaFault.ETCD_STOP)
        assert not await happens(faults, ReplicaFault.ETCD_FREEZE)
        await ends.call()
        for fault in (ReplicaFault.ETCD_SLOW, ReplicaFault.ETCD_LOSES_ANSWERS):
            assert await happens(faults, fault)
        assert (etcd.is_slow, etcd.loses_answers) == (True, True)
        assert await happens(faults, ReplicaFault.ETCD_LOSES_DATA)
        assert not await happens(faults, ReplicaFault.ETCD_LOSES_DATA)
        assert await happens(faults, ReplicaFault.ETCD_PARTED)
        assert this_loop().network.is_partitioned(ETCD_HOSTS[0], ETCD_HOSTS[1])
        await ends.call()
        assert (etcd.dead, etcd.is_slow, etcd.loses_answers) == (set(), False, False)
        assert not etcd.has_lost_data
        assert not this_loop().network.is_partitioned(ETCD_HOSTS[0], ETCD_HOSTS[1])
        await asyncio.sleep(10)
        assert running.history.broken == []


@pytest.mark.parametrize("fault", OF_ETCD)
async def test_a_controller_without_etcd_has_no_such_faults(fault: ReplicaFault) -> None:
    async with running_group() as running:
        faults = ControlFaults(running.servers, this_loop(), Ends().later)
        assert not await happens(faults, fault)
