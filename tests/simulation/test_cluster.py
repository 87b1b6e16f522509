"""SimulatedCluster: consumers join and leave, and each fault happens to the host that it names."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from roquet.testing import clock
from roquet.testing.clock import this_loop
from simulation.balance.consumer import TOPIC, balance_consumer
from simulation.balance.history import BalanceHistory
from simulation.balance.scenario import draw_scenario
from simulation.cluster import SimulatedCluster
from simulation.scenario import Fault, FaultEvent
from simulation.simulator import isolated_clients

SCENARIO = msgspec.structs.replace(draw_scenario(0), brokers=2, queues=1, events=())
CONSUMER, BROKER = "10.0.2.1", "10.0.1.2"

Story = Callable[[SimulatedCluster, BalanceHistory], Awaitable[None]]


def tell(story: Story, consumers: int = 2) -> BalanceHistory:
    """The history of a cluster with some consumers to which the story happens."""

    async def main() -> BalanceHistory:
        loop = this_loop()
        history = BalanceHistory(loop.clock.monotonic_ms)
        cluster = SimulatedCluster(
            SCENARIO,
            history,
            TOPIC,
            lambda host: balance_consumer(host, SCENARIO, history, loop.clock),
        )
        await cluster.start()
        for _ in range(consumers):
            cluster.join()
        await asyncio.sleep(10)
        await story(cluster, history)
        return history

    with isolated_clients():
        return clock.run(main(), seed=0)


@pytest.mark.parametrize("fault", [Fault.LEAVE, Fault.KILL, Fault.SILENCE])
def test_a_consumer_goes_and_owns_nothing_more(fault: Fault) -> None:
    async def story(cluster: SimulatedCluster, history: BalanceHistory) -> None:
        await cluster.inject(FaultEvent(at_ms=0, fault=fault, consumer=4))
        await asyncio.sleep(10)
        assert list(cluster.consumers) == ["10.0.2.2"]

    history = tell(story)
    assert not [o for o in history.ownerships if o.consumer == CONSUMER and o.until_ms is None]
    assert [(d.fault, d.hosts) for d in history.disturbances] == [(fault, (CONSUMER,))]


def test_the_last_consumer_stays() -> None:
    async def story(cluster: SimulatedCluster, history: BalanceHistory) -> None:
        await cluster.inject(FaultEvent(at_ms=0, fault=Fault.KILL))
        assert list(cluster.consumers) == [CONSUMER]

    assert tell(story, consumers=1).disturbances == []


def test_a_consumer_joins_on_a_new_host() -> None:
    async def story(cluster: SimulatedCluster, history: BalanceHistory) -> None:
        await cluster.inject(FaultEvent(at_ms=0, fault=Fault.JOIN))
        assert list(cluster.consumers) == [CONSUMER, "10.0.2.2", "10.0.2.3"]

    tell(story)


def test_a_broker_crashes_once_and_comes_back() -> None:
    async def story(cluster: SimulatedCluster, history: BalanceHistory) -> None:
        crash = FaultEvent(at_ms=0, fault=Fault.CRASH, broker=1, down_ms=5_000)
        await cluster.inject(crash)
        await cluster.inject(crash)  # it is down already
        assert not cluster.servers.all_up
        await asyncio.sleep(6)
        assert cluster.servers.all_up

    history = tell(story)
    assert [(d.fault, d.hosts) for d in history.disturbances] == [
        (Fault.CRASH, (BROKER,)),
        (None, (BROKER,)),
    ]


def test_links_are_cut_and_healed() -> None:
    async def story(cluster: SimulatedCluster, history: BalanceHistory) -> None:
        network = cluster.network
        await cluster.inject(FaultEvent(at_ms=0, fault=Fault.PARTITION, broker=1))
        await cluster.inject(FaultEvent(at_ms=0, fault=Fault.SLOW, broker=1))
        assert network.is_partitioned(CONSUMER, BROKER)
        assert network.travel_ms("10.0.2.2", BROKER) >= 100
        await cluster.inject(FaultEvent(at_ms=0, fault=Fault.HEAL))
        assert not network.is_partitioned(CONSUMER, BROKER)
        assert network.travel_ms("10.0.2.2", BROKER) < 100

    tell(story)
