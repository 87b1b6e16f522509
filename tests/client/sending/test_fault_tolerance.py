"""Latencies and faults of brokers, and the share of sends that they get."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import (
    Created,
    FakeCluster,
    config_of,
    fake_cluster,
    producing,
    session_of,
)

from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.client.sending.fault_tolerance import FaultTolerance
from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed
from roquet.model.queue import MessageQueue

A = MessageQueue("t", "a", 0)


@asynccontextmanager
async def tolerating(
    queues: dict[str, int], **settings: Any
) -> AsyncIterator[tuple[FakeCluster, FaultTolerance]]:
    config: ProducerConfig = config_of(ProducerConfig, fault_tolerance=True, **settings)
    async with (
        fake_cluster(t=queues) as cluster,
        session_of(cluster.address, config, "t") as session,
    ):
        yield cluster, FaultTolerance(session, config)


async def test_quick_brokers_are_not_penalized() -> None:
    async with tolerating({"a": 1}) as (_, known):
        known.record_success(A, 549)
        assert known.usable() is None
        known.record_success(A, 550)
        avoided = known.usable()
        assert avoided is not None
        assert avoided.out_of_use == {"a"}
        await asyncio.sleep(2)
        known.record_success(A, 1)  # healed
        assert known.faults == {}


@pytest.mark.parametrize(
    ("error", "detector", "reachable"),
    [
        (CallRefused(2), False, False),
        (ConnectFailed("nobody"), False, True),
        (CallTimeout("silent"), False, True),
        (ConnectFailed("nobody"), True, False),
    ],
)
async def test_after_an_error_a_broker_is_out_of_use_for_ten_seconds(
    error: Any, detector: bool, reachable: bool
) -> None:
    async with tolerating({"a": 1}, fault_detector=detector) as (_, known):
        known.record_failure(A, 3, error)
        await asyncio.sleep(9.9)
        avoided = known.usable()
        assert avoided is not None
        assert avoided.out_of_use == {"a"}
        assert ("a" in avoided.unreachable) is not reachable
        await asyncio.sleep(0.2)
        avoided = known.usable()
        assert avoided is None or not avoided.out_of_use


async def test_a_probe_tells_reachable_brokers_from_others() -> None:
    async with tolerating({"a": 1, "b": 1}, fault_detector=True) as (cluster, known):
        b = MessageQueue("t", "b", 0)
        known.record_failure(A, 3, ConnectFailed("nobody"))
        known.record_failure(b, 3, ConnectFailed("nobody"))
        await cluster.brokers["b"].server.stop(0)
        await asyncio.sleep(9)
        await known.probe()
        await asyncio.sleep(2)  # the first ten seconds are over
        avoided = known.usable()
        assert avoided is not None
        assert avoided.out_of_use == avoided.unreachable == {"b"}
        assert "a" not in avoided.out_of_use


async def test_a_broker_that_left_is_forgotten() -> None:
    async with tolerating({"a": 1}, fault_detector=True) as (_, known):
        known.record_failure(MessageQueue("t", "gone", 0), 3, CallRefused(2))
        await known.probe()
        assert known.faults == {}


async def test_without_fault_tolerance_no_faults_are_kept(created: Created) -> None:
    tolerances = created(FaultTolerance)
    async with producing({"a": 1, "b": 1}) as (cluster, producer):
        cluster.a.send_ms = 2_900
        seen = Counter([(await producer.send("t", b"x")).queue.broker_name for _ in range(10)])
        assert seen == {"a": 5, "b": 5}
        assert tolerances[0].faults == {}


async def send_for(producer: Producer, seconds: float, tasks: int) -> Counter[str]:
    """Send from several tasks for a time, one message after the other; count messages by broker."""
    loop = asyncio.get_running_loop()
    end, seen = loop.time() + seconds, Counter[str]()

    async def one() -> None:
        while loop.time() < end:
            seen[(await producer.send("t", b"x")).queue.broker_name] += 1

    await asyncio.gather(*(one() for _ in range(tasks)))
    return seen


@pytest.mark.parametrize("tasks", [1, 8])
async def test_a_slow_broker_loses_its_share_and_has_it_back_when_it_heals(tasks: int) -> None:
    async with producing({"a": 4, "b": 4}, fault_tolerance=True) as (cluster, producer):
        slow, quick = cluster.a, cluster.brokers["b"]
        slow.send_ms, quick.send_ms = 1_900, 20
        seen = await send_for(producer, 30, tasks)
        assert 0 < seen["a"] / seen.total() < 0.02, seen
        slow.send_ms = 20
        await asyncio.sleep(6)
        seen = await send_for(producer, 5, tasks)
        assert 0.49 < seen["a"] / seen.total() < 0.51, seen


async def test_a_broker_that_fails_is_left_alone_while_another_serves() -> None:
    async with producing({"a": 4, "b": 4}, fault_tolerance=True) as (cluster, producer):
        broken, sound = cluster.a, cluster.brokers["b"]
        broken.faults += [CallRefused(2, "busy")] * 999
        sound.send_ms = 10
        seen = await send_for(producer, 9, 1)
        assert seen.keys() == {"b"}  # the wrong version goes on with the broker that failed
        assert len(broken.sends) == 1


async def test_when_all_are_at_fault_all_are_tried() -> None:
    async with producing({"a": 2, "b": 2}, fault_tolerance=True) as (cluster, producer):
        for broker in cluster.brokers.values():
            broker.send_ms = 600
        seen = await send_for(producer, 20, 1)
        assert set(seen) == {"a", "b"}


async def test_with_a_detector_no_message_is_spent_on_a_dead_broker(created: Created) -> None:
    tolerances = created(FaultTolerance)
    async with producing({"a": 1, "b": 1}, fault_tolerance=True, fault_detector=True) as (
        cluster,
        producer,
    ):
        cluster.brokers["b"].send_ms = 100
        await send_for(producer, 1, 1)
        await cluster.a.server.stop(0)
        # Half a minute: three times as long as an error counts.
        tries = [(await producer.send("t", b"x")).tries for _ in range(300)]
        assert sum(count > 1 for count in tries) <= 1
        assert tolerances[0].faults["a"].reachable is False
