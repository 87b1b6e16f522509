"""A replicated group in virtual time, without faults of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from roquet.testing.clock import this_loop
from simulation.replicated.history import ReplicatedHistory
from simulation.replicated.scenario import (
    ControllerStore,
    Promise,
    ReplicatedScenario,
)
from simulation.replicated.servers import ReplicatedServers

CALM = ReplicatedScenario(
    seed=0,
    promise=Promise.WHOLE_SET,
    sync_flush=False,
    flushed_reports=False,
    slave_reads=True,
    has_learner=False,
    store=ControllerStore.MEMORY,
    controllers=1,
    lease_ms=2_000,
    heartbeat_timeout_ms=3_000,
    poll_ms=1_000,
    check_ms=500,
    behind_max_ms=5_000,
    slave_timeout_ms=1_500,
    housekeeping_ms=3_000,
    network_ms=(0, 1),
    drifts=(0,) * 6,
    loyal=(0,),
    has_deliveries=False,
    is_hurried=False,
    faults=(),
)
"""A scenario in which nothing happens."""


class RunningGroup(msgspec.Struct, frozen=True):
    """Servers that run, and the history that they write."""

    scenario: ReplicatedScenario
    servers: ReplicatedServers
    history: ReplicatedHistory

    async def until_in_sync(self, *numbers: int) -> None:
        """Wait until these brokers are the sync-state set."""
        async with asyncio.timeout(60):
            while not self.history.states or self.servers.group.in_sync != set(numbers):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@asynccontextmanager
async def running_group(**settings: Any) -> AsyncIterator[RunningGroup]:
    """Three brokers in sync."""
    scenario = msgspec.structs.replace(CALM, **settings)
    history = ReplicatedHistory(this_loop().clock.monotonic_ms)
    running = RunningGroup(scenario, ReplicatedServers(scenario, history, this_loop()), history)
    await running.servers.start()
    await running.until_in_sync(*scenario.members)
    try:
        yield running
    finally:
        running.servers.release()
        await asyncio.sleep(
            0.01
        )  # what has come to a frozen host has its tasks, which can be ended
