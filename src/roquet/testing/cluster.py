"""cluster(brokers=2): a whole cluster in one process on free ports.

    async with cluster(brokers=2) as running:
        async with Producer(running.namesrv_addr) as producer:
            ...
            await running.stop_broker(0)

Everything is real but the size: sockets, name servers, brokers, and files when `store` is a
directory. Settings of the brokers are keywords: `cluster(auto_create_topic=False)`.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import msgspec

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client.arguments import check_number
from roquet.model.topic import MASTER_ID
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net import loop
from roquet.net.clock import SYSTEM_CLOCK, Clock, clock_of_loop
from roquet.rules.replication.acknowledgement import BrokerRole

T = TypeVar("T")

HOST: Final = "127.0.0.1"

SMALL_BROKER: Final[dict[str, Any]] = {
    "host": HOST,
    "port": 0,
    "vip_port": False,
    "advertise": HOST,
    "log_file_size": 64 * 1024 * 1024,
    "queue_file_entries": 10_000,
    "index_slots": 10_000,
    "index_entries": 40_000,
}
"""Settings of a test's brokers: on free local ports, with small files that are quickly made."""

STOP_TIMEOUT_S: Final = 30
"""Longer than a broker waits for requests in flight."""

StoreLocation = Literal["memory"] | Path
"""Where brokers store messages: in memory, or in a directory for each broker below this one."""


class Cluster:
    """Name servers and brokers that run in this process; see `cluster`."""

    def __init__(
        self,
        brokers: int,
        namesrvs: int,
        store: StoreLocation,
        clock: Clock,
        settings: dict[str, Any],
    ) -> None:
        self._wanted = check_number(namesrvs, "namesrvs"), check_number(brokers, "brokers")
        self._store = store if store == "memory" else Path(store)
        self._clock = clock
        self._settings = settings
        self._replicas = 0
        self._running = AsyncExitStack()
        self.namesrvs: list[NameServer] = []
        self.brokers: list[BrokerServer] = []
        """In the order in which they were added; a stopped one keeps its place."""

    @property
    def namesrv_addr(self) -> str:
        """The name servers' addresses, as clients take them."""
        return ";".join(server.address for server in self.namesrvs)

    @property
    def broker_addrs(self) -> Sequence[str]:
        """The brokers' addresses."""
        return [broker.address for broker in self.brokers]

    async def add_broker(self, **settings: Any) -> BrokerServer:
        """Add a broker; its name is the next of broker-a, broker-b and so on."""
        name = f"broker-{_letters(len(self.brokers) - self._replicas)}"
        return await self._add(self._config({"broker_name": name, **settings}))

    async def add_replica(self, of: int = 0, **settings: Any) -> BrokerServer:
        """Add a replica of the broker with that index; its log follows the master's.

        It finds the master by the name servers, or by `ha_master`.
        """
        name = self._broker(of).config.broker_name
        self._replicas += 1
        broker_id = sum(broker.config.broker_name == name for broker in self.brokers)
        fields = {"broker_name": name, "broker_role": BrokerRole.SLAVE, "broker_id": broker_id}
        return await self._add(self._config({**fields, **settings}))

    async def _add(self, config: BrokerConfig) -> BrokerServer:
        broker = BrokerServer(config, self._clock)
        await broker.__aenter__()
        self.brokers.append(broker)
        self._running.push_async_callback(broker.__aexit__, None, None, None)
        return broker

    async def stop_broker(self, index: int) -> None:
        """Stop a broker in good order; messages in memory are lost."""
        await self._broker(index).__aexit__(None, None, None)

    async def start_broker(self, index: int) -> BrokerServer:
        """Start a stopped broker again, on the same port and with its files."""
        stopped = self._broker(index)
        config = msgspec.structs.replace(
            stopped.config, port=stopped.port, ha_port=stopped.broker.replication.stream_server.port
        )
        broker = BrokerServer(config, self._clock)
        await broker.__aenter__()
        self.brokers[index] = broker
        self._running.push_async_callback(broker.__aexit__, None, None, None)
        return broker

    def _broker(self, index: int) -> BrokerServer:
        check_number(index, "broker", 0, len(self.brokers) - 1)
        return self.brokers[index]

    async def __aenter__(self) -> Self:
        namesrvs, brokers = self._wanted
        self._clock = clock_of_loop(self._clock)
        try:
            for _ in range(namesrvs):
                config = NameServerConfig(host=self._settings.get("host", HOST), port=0)
                server = NameServer(config, self._clock)
                self.namesrvs.append(await self._running.enter_async_context(server))
            for _ in range(brokers):
                await self.add_broker()
        except BaseException:
            await self._running.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._running.aclose()

    def _config(self, settings: dict[str, Any]) -> BrokerConfig:
        fields = {**SMALL_BROKER, **self._settings, **settings}
        name, number = fields["broker_name"], fields.get("broker_id", MASTER_ID)
        name = name if number == MASTER_ID else f"{name}-{number}"
        directory = None if self._store == "memory" else self._store / name
        servers = tuple(server.address for server in self.namesrvs)
        return BrokerConfig(**{"store_dir": directory, "name_servers": servers, **fields})


def cluster(
    brokers: int = 1,
    namesrvs: int = 1,
    store: StoreLocation = "memory",
    *,
    clock: Clock = SYSTEM_CLOCK,
    **settings: Any,
) -> Cluster:
    """A whole cluster in this process: enter it with `async with`.

    Clients connect to its `namesrv_addr`. Name servers and brokers listen on free ports of this
    machine, or on the network in memory where the event loop is in virtual time
    (`roquet.testing.clock`), and go by the loop's clock. `settings` are fields of `BrokerConfig`;
    name servers listen on the same `host`.
    """
    return Cluster(brokers, namesrvs, store, clock, settings)


class BlockingCluster:
    """A cluster for tests without async: it runs on an event loop in a thread of its own.

    with BlockingCluster(brokers=2) as running:
        with Producer(running.namesrv_addr) as producer: ...
    """

    def __init__(
        self, brokers: int = 1, namesrvs: int = 1, store: StoreLocation = "memory", **settings: Any
    ) -> None:
        self._loop = loop.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="roquet-cluster", daemon=True
        )
        self._cluster = cluster(brokers, namesrvs, store, **settings)

    @property
    def namesrv_addr(self) -> str:
        """The name servers' addresses, as clients take them."""
        return self._cluster.namesrv_addr

    @property
    def brokers(self) -> Sequence[BrokerServer]:
        """The brokers, for reading; only the cluster's own thread may change them."""
        return self._cluster.brokers

    @property
    def broker_addrs(self) -> Sequence[str]:
        """The brokers' addresses."""
        return self._cluster.broker_addrs

    def add_broker(self, **settings: Any) -> BrokerServer:
        """Add a broker."""
        return self.run(self._cluster.add_broker(**settings))

    def add_replica(self, of: int = 0, **settings: Any) -> BrokerServer:
        """Add a replica of the broker with that index."""
        return self.run(self._cluster.add_replica(of, **settings))

    def stop_broker(self, index: int) -> None:
        """Stop a broker in good order."""
        self.run(self._cluster.stop_broker(index))

    def start_broker(self, index: int) -> BrokerServer:
        """Start a stopped broker again."""
        return self.run(self._cluster.start_broker(index))

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self._cluster.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._cluster.__aexit__(None, None, None))
        finally:
            self._end()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the servers' thread and return its result, within 30 s."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_TIMEOUT_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …: the letters of a number from 0 on."""
    head, last = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + last)
