"""Replicated brokers: three processes of one broker name, and a proxy for each of their ports.

    clients  ──▶ proxy ──▶ listenPort      replicas ──▶ stream proxy ──▶ haListenPort
    broker   ──▶ controller proxy ──▶ controller

A broker is parted by cutting its stream proxy and its controller proxy: replicas and controller
lose it, clients do not. Brokers and controller name their own addresses in answers; proxies replace
these, so that nobody is led past them.
"""

import asyncio
import socket
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

import msgspec

from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.testing.tcp_proxy import TcpProxy

BROKER_NAME: Final = "broker-a"
"""Name that all brokers share: one of them leads, the others are replicas."""

BROKERS: Final = 3

LOG_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one file of the commit log; the default of 1 GiB is more than a demo needs."""

INDEX_SLOTS: Final = 100_000
INDEX_ENTRIES: Final = 400_000
"""Of one file of the key index; the default of 5,000,000 slots takes long to write and delete."""

LOOPBACK: Final = "127.0.0.1"

PORTS: Final = range(20_000, 32_000)
"""Ports of five digits, as have those that systems choose, so that proxies can replace one by the
other; below these, so that no connection takes the port of a broker that is to come back."""

SERVERS: Final = "roquet"


class BrokerNode(msgspec.Struct, kw_only=True):
    """One broker: its ports, its proxies and its process."""

    name: str
    port: int
    stream_port: int
    proxy: TcpProxy
    stream_proxy: TcpProxy
    controller_proxy: TcpProxy
    process: ChildProcess | None = None
    """None after it was killed, until it is started again."""

    @property
    def address(self) -> str:
        """HOST:PORT where it listens itself, past its proxy."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def advertised_port(self) -> int:
        """Port that clients are told, and message ids name."""
        return int(self.proxy.address.rpartition(":")[2])


class ReplicatedBrokers:
    """A name server with a controller, and brokers that follow the one that leads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rng = Random()
        self._ports: set[int] = set()
        """Those that were chosen: nothing listens on them before the brokers are started."""
        self._logs = directory / "logs"
        self._running = AsyncExitStack()
        self.namesrv = ""
        """HOST:PORT of the name server."""
        self.nodes: dict[str, BrokerNode] = {}

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            controller = await self._start_name_server()
            for number in range(1, BROKERS + 1):
                node = await self._prepare(f"broker-{number}", controller)
                self.nodes[node.name] = node
            self._running.push_async_callback(self._stop_brokers)
            await asyncio.gather(*map(self.start, self.nodes))
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

    @property
    def logs(self) -> Path:
        """Directory of the processes' logs."""
        return self._logs

    def names_by_port(self) -> Mapping[int, str]:
        """Brokers by the port that clients are told."""
        return {node.advertised_port: name for name, node in self.nodes.items()}

    async def start(self, name: str) -> None:
        """Start a broker, or start it again on its directory."""
        node = self.nodes[name]
        config = self._directory / f"{name}.conf"
        config.write_text(self._settings(node), "utf-8")
        node.process = await ChildProcess.start(
            name, SERVERS, "broker", "--config", str(config), "--host", LOOPBACK, logs=self._logs
        )
        await node.process.wait_ready("ready at ")

    async def kill(self, name: str) -> None:
        """Kill a broker with SIGKILL."""
        process = self.process(name)
        self.nodes[name].process = None
        await process.kill()

    def process(self, name: str) -> ChildProcess:
        """The process of a broker that was not killed."""
        process = self.nodes[name].process
        assert process is not None, f"{name} was killed"
        return process

    def part(self, name: str) -> None:
        """Cut a broker off from its replicas and from the controller, but not from clients."""
        node = self.nodes[name]
        node.stream_proxy.cut()
        node.controller_proxy.cut()

    def heal(self, name: str) -> None:
        """Connect a broker with its replicas and the controller again."""
        node = self.nodes[name]
        node.stream_proxy.heal()
        node.controller_proxy.heal()

    def mend(self) -> None:
        """Thaw and connect every broker that is not killed, so that all can be stopped."""
        for name, node in self.nodes.items():
            self.heal(name)
            if node.process is not None:
                node.process.thaw()

    def check(self) -> None:
        """Raise ChildProcessFailed when a broker has ended that was not killed."""
        for node in self.nodes.values():
            if node.process is not None and not node.process.is_running:
                raise node.process.failure()

    async def _start_name_server(self) -> str:
        """Start the name server; returns the address of the controller in it."""
        state = f"file:{self._directory / 'controller'}"
        child = await ChildProcess.start(
            "namesrv", SERVERS, "namesrv", "--port", "0", "--host", LOOPBACK,
            "--controller", state, "--controller-port", "0", logs=self._logs,
        )  # fmt: skip
        self._running.push_async_callback(child.stop)
        self.namesrv = await child.wait_ready("name server ready at ")
        return await child.wait_ready("controller ready at ")

    async def _prepare(self, name: str, controller: str) -> BrokerNode:
        """Choose ports of a broker, and start its proxies."""
        port, stream_port = self._free_port(), self._free_port()
        proxies = [
            await self._running.enter_async_context(TcpProxy(target))
            for target in (f"{LOOPBACK}:{port}", f"{LOOPBACK}:{stream_port}", controller)
        ]
        proxy, stream_proxy, controller_proxy = proxies
        proxy.replace(f"{LOOPBACK}:{stream_port}", stream_proxy.address)
        controller_proxy.replace(controller, controller_proxy.address)
        return BrokerNode(
            name=name,
            port=port,
            stream_port=stream_port,
            proxy=proxy,
            stream_proxy=stream_proxy,
            controller_proxy=controller_proxy,
        )

    def _settings(self, node: BrokerNode) -> str:
        """The broker.conf of a broker."""
        settings = {
            "brokerName": BROKER_NAME,
            "brokerIP1": node.proxy.address,
            "listenPort": node.port,
            "haListenPort": node.stream_port,
            "vip_port": "false",
            "storePathRootDir": self._directory / node.name,
            "mappedFileSizeCommitLog": LOG_FILE_BYTES,
            "maxHashSlotNum": INDEX_SLOTS,
            "maxIndexNum": INDEX_ENTRIES,
            "enableControllerMode": "true",
            "controllerAddr": node.controller_proxy.address,
            "namesrvAddr": self.namesrv,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _free_port(self) -> int:
        port = free_port(self._rng, self._ports)
        self._ports.add(port)
        return port

    async def _stop_brokers(self) -> None:
        """Stop all brokers, also those that are frozen or parted."""
        self.mend()
        running = [node.process for node in self.nodes.values() if node.process is not None]
        ended = await asyncio.gather(*(each.stop() for each in running), return_exceptions=True)
        failures = [error for error in ended if isinstance(error, ChildProcessFailed)]
        if failures:
            raise failures[0]


def free_port(rng: Random, taken: Collection[int] = ()) -> int:
    """A port that nothing listens on, and that is not taken."""
    while True:
        port = rng.choice(PORTS)
        if port in taken:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return port
