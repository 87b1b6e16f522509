"""Faults: each happens, is counted, and ends; what the settings do not bear is left out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.simulation.replicated.conftest import RunningGroup, running_group

from roquet.testing.clock import this_loop
from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.controllers import CONTROLLER_HOST
from simulation.replicated.faults import FaultInjector
from simulation.replicated.scenario import (
    MASTER,
    OF_ETCD,
    ControllerStore,
    PlannedFault,
    ReplicaFault,
)
from simulation.replicated.servers import HOSTS

pytestmark = pytest.mark.virtual_time


def planned(fault: ReplicaFault, broker: int = MASTER, length_ms: int = 800) -> PlannedFault:
    return PlannedFault(at_ms=0, fault=fault, broker=broker, other=1, length_ms=length_ms)


@asynccontextmanager
async def injecting(**settings: Any) -> AsyncIterator[tuple[RunningGroup, FaultInjector]]:
    async with running_group(**settings) as running:
        prefix = ConfirmedPrefix(running.history)
        injector = FaultInjector(
            running.scenario, running.servers, running.history, prefix, this_loop(), lambda: None
        )
        yield running, injector


def happened(running: RunningGroup) -> list[str]:
    return [each.fault.name for each in running.history.disturbances if each.fault is not None]


@pytest.mark.parametrize("fault", ReplicaFault)
async def test_a_group_heals_after_each_fault(fault: ReplicaFault) -> None:
    store = ControllerStore.ETCD if fault in OF_ETCD else ControllerStore.MEMORY
    async with injecting(store=store, controllers=2) as (running, injector):
        await injector.inject(planned(fault))
        await asyncio.sleep(0.3)
        await injector.end_all()
        await running.until_in_sync(1, 2, 3)
        assert happened(running) == [fault.name]
        assert not running.servers.down
        assert running.history.broken == []


async def test_a_dead_broker_is_not_killed_again_nor_frozen() -> None:
    async with injecting() as (running, injector):
        for fault in (
            ReplicaFault.KILL,
            ReplicaFault.KILL,
            ReplicaFault.POWER_LOSS,
            ReplicaFault.FREEZE,
            ReplicaFault.STOP,
            ReplicaFault.CONTROLLER_KILL,
            ReplicaFault.CONTROLLER_KILL,
            ReplicaFault.CONTROLLER_FREEZE,
        ):
            await injector.inject(planned(fault, 2))
        assert happened(running) == ["KILL", "CONTROLLER_KILL"]
        await injector.end_all()


async def test_a_fault_that_nobody_can_feel_is_not_counted() -> None:
    async with injecting(store=ControllerStore.ETCD, controllers=2) as (running, injector):
        await injector.inject(planned(ReplicaFault.KILL, 2, length_ms=60_000))
        for fault in (
            ReplicaFault.ISOLATE,
            ReplicaFault.PART_BROKER,
            ReplicaFault.PART_ONE_WAY,
            ReplicaFault.PART_CONTROLLER,
            ReplicaFault.CUT,
            ReplicaFault.CUT_CONTROLLER,
            ReplicaFault.SLOW_NETWORK,
            ReplicaFault.SLOW_DISK,
            ReplicaFault.DISK_FULL,
            ReplicaFault.WALL_CLOCK,
        ):
            await injector.inject(planned(fault, 2))
        for fault in (ReplicaFault.ETCD_SLOW, ReplicaFault.ETCD_LOSES_ANSWERS):
            await injector.inject(planned(fault))
            await injector.inject(planned(fault))
        assert happened(running) == ["KILL", "ETCD_SLOW", "ETCD_LOSES_ANSWERS"]
        for fault in (ReplicaFault.ETCD_STOP, ReplicaFault.ETCD_PARTED):
            await injector.inject(planned(fault))
        await injector.inject(planned(ReplicaFault.CONTROLLER_PARTED))
        assert happened(running)[3:] == ["ETCD_STOP"]


async def test_a_second_machine_keeps_its_power_until_the_first_has_its_log_again() -> None:
    async with injecting() as (running, injector):
        await injector.inject(planned(ReplicaFault.POWER_LOSS, 1))
        await injector.inject(planned(ReplicaFault.POWER_LOSS, 2))
        assert happened(running) == ["POWER_LOSS"]
        await injector.end_all()
        await asyncio.sleep(10)
        await injector.inject(planned(ReplicaFault.POWER_LOSS, 2))
        assert happened(running) == ["POWER_LOSS"] * 2
        await injector.end_all()


async def test_all_machines_may_lose_their_power_where_everything_is_on_disks() -> None:
    async with injecting(sync_flush=True, flushed_reports=True) as (running, injector):
        for number in (1, 2, 3):
            await injector.inject(planned(ReplicaFault.POWER_LOSS, number))
        assert len(happened(running)) == 3
        await injector.end_all()
        await running.until_in_sync(1, 2, 3)


async def test_a_frozen_controller_thaws() -> None:
    async with injecting() as (running, injector):
        await injector.inject(planned(ReplicaFault.CONTROLLER_FREEZE, length_ms=5_000))
        assert running.servers.frozen.hosts == [CONTROLLER_HOST]
        mode = running.servers.mode(HOSTS[0])
        await asyncio.sleep(3)
        assert mode is not None
        assert mode.role.current.is_fenced, "without leases nobody takes messages"
        await asyncio.sleep(3)
        assert running.servers.frozen.hosts == []
        await asyncio.sleep(3)
        assert mode.role.current.is_active
