"""Simulator: runs one seed of a workload from start to end, and gives what its checks find.

    start ─▶ agenda: messages and faults at their times ─▶ settle ─▶ aftermath ─▶ checks

A workload says what is sent and handled, and what must hold in the end; the cluster, its faults,
virtual time and the history are the same for all.
"""

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar, Protocol
from weakref import WeakValueDictionary

import msgspec

from roquet.client.connection import open_consumers
from roquet.testing import clock
from simulation.history import History
from simulation.patching import PlantedDefect, patched


class AgendaItem(msgspec.Struct, frozen=True):
    """Something that happens at a time."""

    at_ms: int
    act: Callable[[], Awaitable[None]]


class StartableCluster(Protocol):
    """Servers of a simulation."""

    async def start(self) -> None:
        """Start them, and return once they serve."""


class Workload(Protocol):
    """Messages for a simulated cluster, and checks of what became of them."""

    name: ClassVar[str]
    aftermath_ms: ClassVar[int]
    """How long it is watched once all is settled: late duplicates come late."""

    @property
    def history(self) -> History:
        """The events so far."""

    @property
    def cluster(self) -> StartableCluster:
        """The cluster that it runs on."""

    def observed(self) -> AbstractContextManager[None]:
        """Observe what the checks need; entered for as long as the workload runs."""

    async def start(self) -> None:
        """Start the first clients, on a cluster that serves."""

    def agenda(self) -> Sequence[AgendaItem]:
        """Everything that happens, in order of time."""

    async def wait_until(self, at_ms: int) -> None:
        """Wait for the time of the next item."""

    async def settle(self) -> bool:
        """Wait until every message is where it belongs; False when that takes too long."""

    def findings(self) -> Sequence[str]:
        """Every promise that was broken; empty when all is well."""


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one seed."""

    workload: str
    seed: int
    findings: tuple[str, ...]
    digest: str
    """Of all lines: a seed gives the same one in every run."""
    lines: tuple[str, ...]
    attempts: int
    """Handlings of messages."""
    acknowledged: int
    """Messages that brokers acknowledged."""
    disturbances: int
    """Faults that took effect, and members that came or left."""


def simulate(
    new_workload: Callable[[int], Workload], seed: int, defect: PlantedDefect = nullcontext
) -> SimulationResult:
    """Run the workload of a seed; `defect` is planted for that time."""

    async def main() -> SimulationResult:
        workload = new_workload(seed)
        await run(workload)
        return _result(workload, seed)

    with defect(), isolated_clients(), warnings.catch_warnings():
        # Processes that are killed leave coroutines whose tasks never had their first turn.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        result = clock.run(main(), seed=seed)
        gc.collect()  # frees the brokers' files now; left alone, a few seeds fill gigabytes
    return result


async def run(workload: Workload) -> None:
    """Run a workload from the first broker to the last line."""
    with workload.observed():
        await workload.cluster.start()
        await workload.start()
        for item in workload.agenda():
            await workload.wait_until(item.at_ms)
            await item.act()
        is_settled = await workload.settle()
        workload.history.say("settled" if is_settled else "not settled")
        await asyncio.sleep(workload.aftermath_ms / 1000)


def _result(workload: Workload, seed: int) -> SimulationResult:
    history = workload.history
    return SimulationResult(
        workload=workload.name,
        seed=seed,
        findings=tuple(workload.findings()),
        digest=history.digest(),
        lines=tuple(history.lines),
        attempts=len(history.attempts),
        acknowledged=len(history.acknowledged),
        disturbances=sum(each.fault is not None for each in history.disturbances),
    )


@contextmanager
def isolated_clients() -> Iterator[None]:
    """Hide this process's other clients: simulations leave killed ones that were never closed."""
    with patched(open_consumers, "registered", WeakValueDictionary()):
        yield
