"""Queues that are locked for one member at the brokers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster, session_of

from roquet.client.config import ConsumerConfig
from roquet.client.rebalance.queue_locks import QueueLocks
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.testing.clock import this_loop

QUEUES = [MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)]


@asynccontextmanager
async def locks_of(
    cluster: FakeCluster, lost: list[Sequence[MessageQueue]]
) -> AsyncIterator[QueueLocks]:
    async with session_of(cluster.address, config_of(ConsumerConfig), "t") as session:
        locks = QueueLocks(session, "g", lost.append)
        locks.start()
        yield locks


async def test_only_free_queues_are_locked() -> None:
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, []) as locks:
        cluster.brokers["b"].locked[QUEUES[1]] = "other"
        assert await locks.lock(QUEUES) == {QUEUES[0]}
        assert locks.held == [QUEUES[0]]
        await locks.unlock([*QUEUES, MessageQueue("t", "zz", 0)])
        assert cluster.a.locked == {}
        assert cluster.brokers["b"].locked == {QUEUES[1]: "other"}


async def test_locks_are_renewed_each_20_s() -> None:
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, []) as locks:
        await locks.lock(QUEUES[:1])
        await asyncio.sleep(0.1)
        before = cluster.a.lock_calls
        await asyncio.sleep(101)
        assert cluster.a.lock_calls - before == 5


async def test_a_lock_that_another_member_has_is_lost() -> None:
    lost: list[Sequence[MessageQueue]] = []
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, lost) as locks:
        await locks.lock(QUEUES)
        cluster.brokers["b"].locked[QUEUES[1]] = "other"
        await asyncio.sleep(21)
        assert lost == [[QUEUES[1]]]
        assert locks.held == [QUEUES[0]]


async def test_an_unconfirmed_lock_expires_after_30_s() -> None:
    lost: list[Sequence[MessageQueue]] = []
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, lost) as locks:
        await locks.lock(QUEUES)
        cluster.brokers["b"].lock_faults = [CallRefused(2, "busy")] * 99
        await asyncio.sleep(29)
        assert not lost
        await asyncio.sleep(3)
        assert lost == [[QUEUES[1]]]


async def test_an_unconfirmed_lock_expires_while_the_machine_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[Sequence[MessageQueue]] = []
    slept_ms, clock = 0, this_loop().clock

    def boottime_ms(_: object) -> int:
        return clock.monotonic_ms() + slept_ms

    monkeypatch.setattr(type(clock), "boottime_ms", boottime_ms, raising=False)
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, lost) as locks:
        await locks.lock(QUEUES)
        cluster.brokers["b"].lock_faults = [CallRefused(2, "busy")] * 99
        slept_ms = 30_000
        await asyncio.sleep(21)
        assert lost == [[QUEUES[1]]]


async def test_a_short_failure_of_the_broker_costs_no_lock() -> None:
    lost: list[Sequence[MessageQueue]] = []
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, lost) as locks:
        await locks.lock(QUEUES)
        cluster.brokers["b"].lock_faults = [CallRefused(2, "busy")] * 5
        await asyncio.sleep(120)
        assert not lost


async def test_an_unanswered_lock_request_locks_nothing() -> None:
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, locks_of(cluster, []) as locks:
        cluster.a.lock_faults = [CallRefused(2, "busy")]
        assert await locks.lock(QUEUES) == {QUEUES[1]}
