"""SimulatedServers: a name server and brokers; a broker that crashes comes back with its files."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.channel import Channel
from roquet.net.clock import Clock
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.testing.clock import VirtualLoop
from roquet.wire.calls.admin.topic import CreateTopic
from simulation.hosts import Hosts

NAMESRV_HOST: Final = "10.0.0.1"
NAMESRV_PORT: Final = 9876
NAMESRV: Final = f"{NAMESRV_HOST}:{NAMESRV_PORT}"
OPERATOR_HOST: Final = "10.0.3.1"
PORT: Final = 10911

SMALL_FILES: Final[dict[str, Any]] = {
    "log_file_size": 1 << 20,
    "queue_file_entries": 300,
    "index_slots": 500,
    "index_entries": 2_000,
}
"""Store settings with files so small that a few messages fill one."""


def new_name_server(clock: Clock) -> NameServer:
    """The name server, for `NAMESRV_HOST`."""
    return NameServer(NameServerConfig(host=NAMESRV_HOST, port=NAMESRV_PORT), clock)


class SimulatedServers:
    """The servers of a simulated cluster, by host."""

    def __init__(
        self,
        seed: int,
        count: int,
        loop: VirtualLoop,
        hosts: Hosts,
        topics: tuple[CreateTopic, ...],
        store_dir: Path | None = None,
    ) -> None:
        self._seed = seed
        self._loop = loop
        self._hosts = hosts
        self._topics = topics
        self._store_dir = store_dir
        self._files = {f"10.0.1.{n + 1}": MemoryFiles() for n in range(count)}
        self._down: dict[str, None] = {}
        self._returns: list[asyncio.Task[None]] = []
        self.brokers: dict[str, BrokerServer] = {}
        self.began_ms: dict[str, list[int]] = {}
        """When each broker began to serve, in ms since the start of the simulation."""
        self.died_ms: dict[str, list[int]] = {}

    @property
    def all_up(self) -> bool:
        """Whether no broker is down."""
        return not self._down

    async def start(self) -> None:
        """Start all of them."""
        server = new_name_server(self._loop.clock)
        await self._hosts.run(NAMESRV_HOST, server.__aenter__())
        for host in self._files:
            await self._start_broker(host)

    async def crash(self, host: str, down_ms: int, returned: Callable[[str], None]) -> bool:
        """Kill a broker's process, and start it again after `down_ms` with the files that it wrote.

        `returned` is called with the host when it serves again. False if it is down already.
        """
        if host in self._down:
            return False
        self._down[host] = None
        self.died_ms.setdefault(host, []).append(self._loop.clock.monotonic_ms())
        self._files[host] = self._files[host].copy()
        self._hosts.kill(host)
        await self._hosts.wait_ended(host)
        self._returns.append(asyncio.create_task(self._come_back(host, down_ms, returned)))
        return True

    async def _come_back(self, host: str, down_ms: int, returned: Callable[[str], None]) -> None:
        await asyncio.sleep(down_ms / 1000)
        self._loop.network.revive(host)
        await self._start_broker(host)
        del self._down[host]
        returned(host)

    async def _start_broker(self, host: str) -> None:
        clock = self._loop.clock
        config = BrokerConfig(
            broker_name=f"broker-{host[-1]}",
            host=host,
            port=PORT,
            advertise=host,
            name_servers=(NAMESRV,),
            store_dir=self._store_dir,
            # A broker without tables on disk has no topic between its return and the operator's
            # call: a send in between would create one with more queues than the operator's, and
            # messages in those are outside the topic afterwards.
            auto_create_topic=False,
            **SMALL_FILES,
        )
        rng = Random(f"{self._seed} {host} {clock.now_ms()}")
        server = BrokerServer(config, clock, files=self._files[host], rng=rng)
        self.brokers[host] = server
        await self._hosts.run(host, server.__aenter__())
        self.began_ms.setdefault(host, []).append(clock.monotonic_ms())
        await self._hosts.run(OPERATOR_HOST, self._create_topics(host))

    async def _create_topics(self, host: str) -> None:
        channel = await Channel.connect(host, PORT, clock=self._loop.clock)
        for topic in self._topics:
            await channel.call(topic)
        await channel.close()
