"""SimulatedCluster: a name server, brokers and consumers, and the faults that happen to them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from roquet.model.topic import READ_WRITE
from roquet.testing.clock import this_loop
from roquet.wire.calls.admin.topic import CreateTopic
from simulation.consumer import SimulatedConsumer
from simulation.history import History
from simulation.hosts import Hosts
from simulation.scenario import ClusterScenario, Fault, FaultEvent
from simulation.servers import SimulatedServers

SLOW_MS: Final = (100, 2_500)
"""Least and most delay of bytes from and to a slow broker."""

NewConsumer = Callable[[str], SimulatedConsumer]
"""Makes a consumer for a host."""


class SimulatedCluster:
    """A cluster in virtual time, on the running `VirtualLoop`."""

    def __init__(
        self,
        scenario: ClusterScenario,
        history: History,
        topic: str,
        new_consumer: NewConsumer,
        store_dir: Path | None = None,
    ) -> None:
        loop = this_loop()
        self._scenario = scenario
        self._history = history
        self._new_consumer = new_consumer
        self.clock = loop.clock
        self.network = loop.network
        self.hosts = Hosts(loop)
        create = CreateTopic(
            topic=topic,
            read_queue_nums=scenario.queues,
            write_queue_nums=scenario.queues,
            perm=READ_WRITE,
        )
        self.servers = SimulatedServers(
            scenario.seed, scenario.brokers, loop, self.hosts, (create,), store_dir
        )
        self.consumers: dict[str, SimulatedConsumer] = {}
        """Living members of the group that faults happen to, by host."""
        self._lives: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the servers, and wait until the name server knows the topic's queues."""
        self.network.delay(*self._scenario.network_ms)
        await self.servers.start()
        await asyncio.sleep(1)

    def join(self) -> None:
        """Let one more consumer join the group."""
        consumer = self.run_consumer(self._new_consumer)
        self.consumers[consumer.host] = consumer

    def run_consumer(self, new_consumer: NewConsumer) -> SimulatedConsumer:
        """Run a consumer on a new host; no fault will happen to it."""
        consumer = new_consumer(f"10.0.2.{len(self._lives) + 1}")
        self._lives.append(self.hosts.run(consumer.host, consumer.live()))
        return consumer

    async def inject(self, event: FaultEvent) -> None:
        """Let a fault happen, and note it; nothing if the last consumer or a dead broker is hit."""
        consumer = _choose(sorted(self.consumers), event.consumer)
        broker = _choose(sorted(self.servers.brokers), event.broker)
        match event.fault:
            case Fault.JOIN:
                self._history.disturb(event.fault)
                self.join()
            case Fault.HEAL:
                self._history.disturb(event.fault)
                self.network.heal()
            case Fault.SLOW:
                self._history.disturb(event.fault, broker)
                self.network.slow(broker, *SLOW_MS)
            case Fault.PARTITION:
                self._history.disturb(event.fault, consumer, broker)
                self.network.partition(consumer, broker)
            case Fault.CRASH:
                await self._crash(broker, event.down_ms)
            case _ if len(self.consumers) > 1:  # without any consumer nothing would be handled
                self._lose(consumer, event.fault)

    def _lose(self, host: str, fault: Fault) -> None:
        consumer = self.consumers.pop(host)
        self._history.disturb(fault, host)
        if fault is Fault.LEAVE:
            consumer.consumer.stop()
            return
        self._history.consumer_killed(host)
        self.hosts.kill(host, silently=fault is Fault.SILENCE)

    async def _crash(self, host: str, down_ms: int) -> None:
        if await self.servers.crash(host, down_ms, self._history.broker_returned):
            self._history.broker_crashed(host, self._history.now_ms() + down_ms)


def _choose(hosts: Sequence[str], number: int) -> str:
    return hosts[number % len(hosts)]
