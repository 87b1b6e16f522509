"""A replicated cluster of processes that can be killed, frozen, and cut off from each other.

A library of `kill_master.py`: a name server, one controller with its state in a file or two with
etcd, and three brokers. What brokers say to each other and to controllers goes through proxies,
one for each pair of processes; senders reach brokers directly.
"""

import asyncio
import contextlib
import itertools
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools" / "fixtures")]

import genuine  # noqa: E402
from roquet.model.errors import RoquetError  # noqa: E402
from roquet.net.channel import Channel  # noqa: E402
from roquet.net.http_client import HttpClient  # noqa: E402
from roquet.testing.tcp_proxy import Direction, TcpProxy  # noqa: E402
from roquet.wire.calls.controller import GetControllerMetadata  # noqa: E402

HOST = "127.0.0.1"
BROKERS = tuple(f"broker{number}" for number in (1, 2, 3))
CONTROLLERS = ("controller1", "controller2")
ETCD_MEMBERS = tuple(f"etcd{number}" for number in (1, 2, 3))
ASK_MS = 1_000
"""Ms that a process has to say whether it leads: a frozen one says nothing."""
LEADER_SECONDS_MAX = 30
CLOSE_LOOKS_MAX = 100
PROXIES_MAX = 2 * len(BROKERS) * (len(BROKERS) - 1) + len(BROKERS) * len(CONTROLLERS)


def free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to connections, so that restarts find theirs free.

    All have five digits: addresses that replace each other are equally long. None lies two below
    another, where brokers look for the second port of their master.
    """
    chance = random.SystemRandom()
    with contextlib.ExitStack() as sockets:
        ports: list[int] = []
        while len(ports) < count:
            port = chance.randrange(12_000, 30_000, 4)
            with contextlib.suppress(OSError):
                sockets.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
        return ports


class Flow(Enum):
    """Bytes that a cut holds back, as seen by one end."""

    OUT = "what it sends"
    IN = "what it is sent"
    BOTH = "both ways"


class Links:
    """Connections of brokers to each other and to controllers, each through a proxy.

    Controllers and masters name addresses in their answers. Proxies replace them, so that a broker
    never learns the way past its own proxies.
    """

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = iter(ports)
        self._proxies: dict[tuple[str, str], list[TcpProxy]] = {}
        self._running = contextlib.AsyncExitStack()

    async def add(self, source: str, target: str, address: str) -> TcpProxy:
        """Add a proxy for connections of a process to an address of another."""
        proxy = TcpProxy(address, port=next(self._ports))
        await self._running.enter_async_context(proxy)
        self._proxies.setdefault((source, target), []).append(proxy)
        return proxy

    def address(self, source: str, target: str) -> str:
        """Where a process finds another."""
        return self._proxies[source, target][0].address

    def cut(self, one: str, others: Iterable[str], flow: Flow) -> None:
        """Cut a process off from others, one way or both."""
        out = {Flow.OUT: Direction.TO_TARGET, Flow.IN: Direction.FROM_TARGET}
        back = {Flow.OUT: Direction.FROM_TARGET, Flow.IN: Direction.TO_TARGET}
        for other in others:
            for proxy in self._proxies.get((one, other), ()):
                proxy.cut(out.get(flow, Direction.BOTH))
            for proxy in self._proxies.get((other, one), ()):
                proxy.cut(back.get(flow, Direction.BOTH))

    def heal(self) -> None:
        """Let everything pass again."""
        for proxy in itertools.chain.from_iterable(self._proxies.values()):
            if proxy.is_cut:
                proxy.heal()

    async def close(self) -> None:
        """End all proxies; the processes have ended, and so do their connections."""
        self.heal()
        proxies = [*itertools.chain.from_iterable(self._proxies.values())]
        for _ in range(CLOSE_LOOKS_MAX):
            if not any(proxy.connections for proxy in proxies):
                break
            await asyncio.sleep(0.02)
        await self._running.aclose()


class KillCluster:
    """Name server, controllers, etcd and brokers, each a process."""

    def __init__(self, folder: Path, *, has_etcd: bool) -> None:
        self.folder = folder
        self.controllers = CONTROLLERS if has_etcd else CONTROLLERS[:1]
        self.etcd_members = ETCD_MEMBERS if has_etcd else ()
        names = ("namesrv", *self.etcd_members, *self.controllers, *BROKERS)
        ports = free_ports(2 * len(names) + PROXIES_MAX)
        self.links = Links(ports[2 * len(names) :])
        self._ports = dict(zip(names, zip(ports[::2], ports[1::2], strict=False), strict=False))
        """Two of each: the second one of a broker streams its log, etcd's is for its peers."""
        self._stacks: dict[str, contextlib.ExitStack] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}

    def address(self, name: str) -> str:
        """Address of a process for its clients."""
        return f"{HOST}:{self._ports[name][0]}"

    def broker_at(self, address: str) -> str:
        """Name of the broker process at an address."""
        return next(name for name in BROKERS if self.address(name) == address)

    # -- processes -----------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Start processes, or start them again; returns when all of them serve."""
        for name in names:
            self._launch(name)
        for name in names:
            ready = "ready to serve client requests" if name in self.etcd_members else "ready at"
            await asyncio.to_thread(genuine.wait_for, self._logs[name], ready, self._children[name])

    def _launch(self, name: str) -> None:
        stack = contextlib.ExitStack()
        log = self._logs[name] = self.folder / f"{name}-{time.monotonic_ns()}.log"
        self._children[name] = stack.enter_context(
            genuine.process(self._command(name), self.folder / name, log)
        )
        self._stacks[name] = stack

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self._children[name].send_signal(number)

    def kill(self, name: str) -> None:
        """Kill a process and reap it."""
        self.signal(name, signal.SIGKILL)
        self._stacks.pop(name).close()

    async def __aenter__(self) -> "KillCluster":
        try:
            await self._link()
            await self.start("namesrv", *self.etcd_members)
            await self.start(*self.controllers)
            await self.start(*BROKERS)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in tuple(self._stacks):
            self.kill(name)
        await self.links.close()

    async def _link(self) -> None:
        """Give each broker a path of its own to every other broker and to each controller."""
        for source in BROKERS:
            told: dict[str, str] = {}
            for target in BROKERS:
                if target != source:
                    port, stream_port = self._ports[target]
                    proxy = await self.links.add(source, target, f"{HOST}:{port}")
                    stream = await self.links.add(source, target, f"{HOST}:{stream_port}")
                    proxy.replace(f"{HOST}:{stream_port}", stream.address)
                    told[f"{HOST}:{port}"] = proxy.address
            paths = {
                self.address(target): await self.links.add(source, target, self.address(target))
                for target in self.controllers
            }
            told |= {address: path.address for address, path in paths.items()}
            for path in paths.values():
                for address, other in told.items():
                    path.replace(address, other)

    # -- commands ------------------------------------------------------------------------------

    def _command(self, name: str) -> Sequence[str]:
        port = str(self._ports[name][0])
        roquet = [sys.executable, "-m", "roquet"]
        if name in self.etcd_members:
            return self._etcd_command(name)
        if name == "namesrv":
            return [*roquet, "namesrv", "--port", port]
        if name in self.controllers:
            where = ["--host", HOST, "--port", port, "--advertise", self.address(name)]
            return [*roquet, "controller", *where, "--store", self._store()]
        return self._broker_command(name)

    def _store(self) -> str:
        if self.etcd_members:
            return "etcd:" + ",".join(map(self.address, self.etcd_members))
        return f"file:{self.folder / 'state'}"

    def _broker_command(self, name: str) -> Sequence[str]:
        port, stream_port = self._ports[name]
        controllers = (self.links.address(name, each) for each in self.controllers)
        config = self.folder / f"{name}.conf"
        config.write_text(
            f"brokerName=broker-a\nbrokerIP1={HOST}\nlistenPort={port}\n"
            f"haListenPort={stream_port}\nvip_port=false\n"
            f"storePathRootDir={self.folder / name / 'store'}\nmappedFileSizeCommitLog=16777216\n"
            f"enableControllerMode=true\ncontrollerAddr={';'.join(controllers)}\n"
            f"namesrvAddr={self.address('namesrv')}\n",
            "utf-8",
        )
        return [sys.executable, "-m", "roquet", "broker", "--config", str(config)]

    def _etcd_command(self, name: str) -> Sequence[str]:
        peers = {each: f"http://{HOST}:{self._ports[each][1]}" for each in self.etcd_members}
        client = f"http://{self.address(name)}"
        options = {
            "--name": name,
            "--data-dir": str(self.folder / name / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peers[name],
            "--initial-advertise-peer-urls": peers[name],
            "--initial-cluster": ",".join(f"{each}={url}" for each, url in peers.items()),
        }
        return ["etcd", *itertools.chain.from_iterable(options.items())]

    # -- who leads -----------------------------------------------------------------------------

    async def leading_controller(self) -> str:
        """Name of the controller that leads."""
        return await self._leader(self.controllers, self._leads_controllers)

    async def leading_etcd(self) -> str:
        """Name of the etcd member that leads."""
        return await self._leader(self.etcd_members, self._leads_etcd)

    async def _leader(self, names: Sequence[str], leads: "Callable[[str], Awaitable[bool]]") -> str:
        deadline = time.monotonic() + LEADER_SECONDS_MAX
        while time.monotonic() < deadline:
            for name in names:
                with contextlib.suppress(RoquetError):
                    if await leads(name):
                        return name
            await asyncio.sleep(0.1)
        raise AssertionError(f"none of {', '.join(names)} leads")

    async def _leads_controllers(self, name: str) -> bool:
        port = self._ports[name][0]
        async with await Channel.connect(HOST, port, timeout_ms=ASK_MS) as channel:
            return (await channel.call(GetControllerMetadata(), timeout_ms=ASK_MS)).is_leader

    async def _leads_etcd(self, name: str) -> bool:
        client = HttpClient(self.address(name))
        try:
            answer = await client.post("/v3/maintenance/status", b"{}", timeout_ms=ASK_MS)
        finally:
            await client.close()
        status = json.loads(answer)
        return bool(status["leader"] == status["header"]["member_id"])
