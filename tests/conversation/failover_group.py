"""A group of brokers with a controller, in virtual time over the network in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.controller.state_store.memory import MemoryStore
from roquet.model.errors import CallError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.channel import Channel
from roquet.net.clock import Clock
from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.testing.clock import this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.calls.controller import ElectMaster
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.records.record import decode_many
from simulation.hosts import Hosts
from simulation.servers import SMALL_FILES

R = TypeVar("R", bound=Reply)

NAMESRV = "10.0.0.1"
CONTROLLER = "10.0.2.1"
CLIENT = "10.0.3.1"
PORT = 10911
TOPIC = "orders"
ELECT_TIMEOUT_MS = 15_000


class WrongClock:
    """A clock that is so many ms ahead."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    async def sleep(self, ms: int) -> None:
        await self._clock.sleep(ms)


class Group:
    """Brokers of one name; broker `n` is on host 10.0.1.n."""

    def __init__(self, **settings: Any) -> None:
        self.loop = this_loop()
        self.network = self.loop.network
        self.hosts = Hosts(self.loop)
        self.state = MemoryStore()
        self.settings = settings
        self.files: dict[int, MemoryFiles] = {}
        self.boot_ids: dict[int, str] = {}
        self.clocks: dict[int, Clock] = {}
        """Clocks of brokers that are not right."""
        self.brokers: dict[int, BrokerServer] = {}
        self.acknowledged: dict[str, int] = {}
        """Bodies that were acknowledged, and the queue offset that was told."""

    @staticmethod
    def host(number: int) -> str:
        return f"10.0.1.{number}"

    # -- servers -----------------------------------------------------------------------------

    async def start_namesrv(self) -> None:
        config = NameServerConfig(host=NAMESRV, port=9876)
        server = NameServer(config, self.loop.clock)
        await self.hosts.run(NAMESRV, _enter(server))

    async def start_controller(self, **settings: Any) -> None:
        self.network.revive(CONTROLLER)
        config = ControllerConfig(host=CONTROLLER, port=9878, advertise=CONTROLLER, **settings)
        server = ControllerServer(config, self.loop.clock, store=self.state)
        await self.hosts.run(CONTROLLER, _enter(server))

    async def kill_controller(self) -> None:
        self.hosts.kill(CONTROLLER)
        await self.hosts.wait_ended(CONTROLLER)

    async def elect(self, number: int, *, unclean: bool = False) -> None:
        """Let an operator name the next master."""
        call = ElectMaster(
            cluster_name="c",
            broker_name="g",
            broker_id=number,
            designate_elect=True,
            unclean=unclean,
        )
        async with await Channel.connect(CONTROLLER, 9878, clock=self.loop.clock) as channel:
            await channel.call(call, ELECT_TIMEOUT_MS)

    async def start_broker(self, number: int, **settings: Any) -> BrokerServer:
        host = self.host(number)
        self.network.revive(host)
        config = BrokerConfig(
            **{
                "broker_name": "g",
                "cluster_name": "c",
                "host": host,
                "port": PORT,
                "vip_port": False,
                "advertise": host,
                "name_servers": (f"{NAMESRV}:9876",),
                "controllers": (f"{CONTROLLER}:9878",),
                "controller_mode": True,
                "store_dir": Path("/data"),
                **SMALL_FILES,
                **self.settings,
                **settings,
            }
        )
        files = self.files.setdefault(number, MemoryFiles())
        server = BrokerServer(
            config,
            self.clocks.get(number, self.loop.clock),
            files=files,
            rng=Random(f"{number} {self.loop.clock.now_ms()}"),
            boot_id=self.boot_ids.setdefault(number, "first"),
        )
        self.brokers[number] = server
        await self.hosts.run(host, _enter(server))
        return server

    async def kill(self, number: int) -> None:
        """Kill the process of a broker: what it wrote to its files stays."""
        self.files[number] = self.files[number].copy()
        self.hosts.kill(self.host(number))
        await self.hosts.wait_ended(self.host(number))
        del self.brokers[number]

    def lose_tail(self, number: int, count: int) -> None:
        """Let the machine of a killed broker lose its power, and the log its last messages."""
        config = StoreConfig(log_file_size=SMALL_FILES["log_file_size"])
        store = Store.open(Path("/data"), config, files=self.files[number], now_ms=0)
        _, end = store.bounds(TOPIC, 0)
        (record,) = store.read(TOPIC, 0, end - count, count_max=1).parts
        store.raw.truncate(next(decode_many(record)).position)
        self.files[number] = self.files[number].copy()
        self.boot_ids[number] += "'"

    def part(self, number: int, *hosts: str) -> None:
        """Hold back all bytes between a broker and these hosts, or everybody."""
        others = [self.host(other) for other in self.brokers if other != number]
        for host in hosts or (*others, NAMESRV, CONTROLLER, CLIENT):
            self.network.partition(self.host(number), host)

    # -- looks -------------------------------------------------------------------------------

    def master(self) -> int | None:
        """Number of the only broker that takes messages; None without one."""
        leading = [
            n for n, b in self.brokers.items() if b.broker.replication.role.current.is_active
        ]
        return leading[0] if len(leading) == 1 else None

    def members(self) -> frozenset[int]:
        """Sync-state set as the master knows it, by ids."""
        number = self.master()
        if number is None:
            return frozenset()
        mode = self.brokers[number].broker.replication.controller_mode
        assert mode is not None
        return mode.sync_set.state.members

    async def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self.loop.clock.sleep(50)

    async def settled(self, count: int, seconds: float = 60) -> int:
        """Wait until somebody leads and so many brokers are in sync; returns the master."""
        await self.until(lambda: len(self.members()) == count, seconds)
        number = self.master()
        assert number is not None
        return number

    # -- messages ----------------------------------------------------------------------------

    async def send(self, body: str, number: int | None = None, properties: str = "") -> SendReply:
        """Send a message to a broker, the master by default, and note if it is acknowledged."""
        number = self.master() if number is None else number
        assert number is not None, "somebody leads"
        reply = await self.hosts.run(CLIENT, self._send(self.host(number), body, properties))
        if reply.code == 0:
            assert body not in self.acknowledged
            self.acknowledged[body] = reply.queue_offset or 0
        return reply

    async def ask(self, number: int, call: Call[R]) -> R:
        """The reply of a broker."""
        host = self.host(number)
        async with await Channel.connect(host, PORT, clock=self.loop.clock) as channel:
            return await channel.call(call)

    async def body(self, number: int, call: Call[Reply]) -> bytes:
        """The body of a broker's reply."""
        return (await self.ask(number, call)).body

    async def send_on(self, bodies: Iterable[str]) -> None:
        """Send to whoever leads until each message is acknowledged."""
        for body in bodies:
            for attempt in range(1_000):
                try:
                    if self.master() and (await self.send(f"{body}.{attempt}")).code == 0:
                        break
                except CallError:
                    pass
                await asyncio.sleep(0.1)
            else:
                raise AssertionError("nobody takes messages")

    async def _send(self, host: str, body: str, properties: str) -> SendReply:
        channel = await Channel.connect(host, PORT, clock=self.loop.clock, timeout_ms=1_000)
        async with channel:
            call = Send(
                producer_group="p",
                topic=TOPIC,
                default_topic_queue_nums=1,
                queue_id=0,
                born_timestamp=self.loop.clock.now_ms(),
                properties=properties,
                body=body.encode(),
            )
            try:
                return await channel.call(call, 5_000)
            except CallError as error:
                code = getattr(error, "code", None)
                if code is None:
                    raise
                return SendReply(code=code, remark=str(error))

    def stored(self, number: int) -> list[str]:
        """Bodies of all messages of a broker's log, in the order of the queue."""
        store = self.brokers[number].broker.log.store
        found: list[str] = []
        offset, end = store.bounds(TOPIC, 0)
        while offset < end:
            part = store.read(TOPIC, 0, offset)
            assert part.next_offset > offset
            for view in part.parts:
                found += [record.body.decode() for record in decode_many(view)]
            offset = part.next_offset
        return found

    def check(self) -> None:
        """Nothing that was acknowledged is lost, and each is where its sender was told."""
        number = self.master()
        assert number is not None
        bodies = self.stored(number)
        for body, offset in self.acknowledged.items():
            assert bodies[offset] == body


async def _enter(server: Any) -> None:
    await server.__aenter__()


@asynccontextmanager
async def group(
    count: int = 3, *, running: Group | None = None, **settings: Any
) -> AsyncIterator[Group]:
    """A name server, a controller and brokers that have just been started."""
    running = running or Group(**settings)
    await running.start_namesrv()
    await running.start_controller()
    for number in range(1, count + 1):
        await running.start_broker(number)
        identity = Path("/data/brokerIdentity")
        await running.until(lambda: identity in running.files[number].contents)  # noqa: B023
    yield running
    await running.loop.clock.sleep(3)  # what has just begun at this moment has ended then


@asynccontextmanager
async def settled(bodies: Iterable[str] = (), **settings: Any) -> AsyncIterator[Group]:
    """Three brokers that are in sync, after messages with these bodies."""
    async with group(**settings) as running:
        await running.settled(3)
        await running.send_on(bodies)
        yield running
