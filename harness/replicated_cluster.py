"""A replicated cluster of processes that can be killed, frozen, and cut off from each other.

A name server, one controller with its state in a file or two with etcd, and three brokers of one
name. What brokers say to each other and to controllers goes through proxies, one for each pair of
processes; clients reach brokers directly.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from harness import servers
from harness.links import Links
from harness.ports import HOST, free_ports
from harness.processes import Process
from roquet.model.errors import RoquetError
from roquet.net.channel import Channel
from roquet.net.http_client import HttpClient
from roquet.wire.calls.controller import GetControllerMetadata

NAME_SERVER: Final = "namesrv"
BROKER_NAME: Final = "broker-a"
"""Name that all brokers share: one of them leads, the others are replicas."""
BROKERS: Final = ("broker-1", "broker-2", "broker-3")
CONTROLLERS: Final = ("controller-1", "controller-2")
ETCD_MEMBERS: Final = ("etcd-1", "etcd-2", "etcd-3")

SETTINGS: Final = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}
"""Of brokers: files as large as by default take long to write and to delete."""

ASK_MS: Final = 1_000
"""Ms that a process has to say whether it leads: a frozen one says nothing."""
LEADER_SECONDS_MAX: Final = 30
PROXIES_MAX: Final = 2 * len(BROKERS) * (len(BROKERS) - 1) + len(BROKERS) * len(CONTROLLERS)


class ReplicatedCluster:
    """Name server, controllers, etcd and brokers, each a process; as a context, while it runs."""

    def __init__(
        self, folder: Path, *, has_etcd: bool = False, has_links: bool = True, **settings: object
    ) -> None:
        """Without links brokers reach each other directly; `settings` are of every broker."""
        self.folder = folder
        self.controllers = CONTROLLERS if has_etcd else CONTROLLERS[:1]
        self.etcd_members = ETCD_MEMBERS if has_etcd else ()
        names = (NAME_SERVER, *self.etcd_members, *self.controllers, *BROKERS)
        ports = free_ports(2 * len(names) + PROXIES_MAX)
        self.links = Links(ports[2 * len(names) :])
        self.processes: dict[str, Process] = {}
        """Those that were started at least once, by name."""
        self._ports = dict(zip(names, zip(ports[::2], ports[1::2], strict=False), strict=False))
        """Two of each: the second one of a broker streams its log, etcd's is for its peers."""
        self._has_links = has_links
        self._settings = {**SETTINGS, **settings}

    def address(self, name: str) -> str:
        """Address of a process for its clients."""
        return f"{HOST}:{self._ports[name][0]}"

    @property
    def namesrv(self) -> str:
        """Address of the name server."""
        return self.address(NAME_SERVER)

    @property
    def addresses(self) -> Mapping[str, str]:
        """Addresses of the brokers by name."""
        return {name: self.address(name) for name in BROKERS}

    @property
    def names_by_port(self) -> Mapping[int, str]:
        """Brokers by the port that clients connect to."""
        return {self._ports[name][0]: name for name in BROKERS}

    def broker_at(self, address: str) -> str:
        """Name of the broker process at an address."""
        return next(name for name in BROKERS if self.address(name) == address)

    # -- processes -----------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Start processes, or start them again; returns when all of them serve."""
        for name in names:
            if name not in self.processes:
                self.processes[name] = self._described(name)
            self.processes[name].launch()
        for name in names:
            await asyncio.to_thread(self.processes[name].wait_ready)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        self.processes[name].kill()

    async def restart(self, name: str) -> None:
        """Stop a process in good order, and start it again."""
        await asyncio.to_thread(self.processes[name].stop)
        await self.start(name)

    def freeze(self, name: str) -> None:
        """Stop a process with SIGSTOP; its connections stay open."""
        self.processes[name].freeze()

    def thaw(self, name: str) -> None:
        """Let a process go on with SIGCONT."""
        self.processes[name].thaw()

    def check(self) -> None:
        """Raise ProcessFailed when a process has ended that was not killed."""
        for process in self.processes.values():
            process.check()

    def mend(self) -> None:
        """Thaw and connect every process that is not killed, so that all can be stopped."""
        self.links.heal()
        for process in self.processes.values():
            if process.is_running:
                process.thaw()

    async def __aenter__(self) -> Self:
        try:
            if self._has_links:
                await self._link()
            await self.start(NAME_SERVER, *self.etcd_members)
            await self.start(*self.controllers)
            await self.start(*BROKERS)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in reversed(self.processes.values()):
            process.kill()
        await self.links.close()

    async def stop(self) -> None:
        """Stop all brokers in good order, also those that are frozen or cut off.

        Raises ProcessFailed when one of them ends with an error.
        """
        self.mend()
        running = [self.processes[name] for name in BROKERS if self.processes[name].is_running]
        codes = await asyncio.gather(*(asyncio.to_thread(each.stop) for each in running))
        for process, code in zip(running, codes, strict=True):
            if code != 0:
                raise process.failure(f"ended with code {code}")

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

    def _described(self, name: str) -> Process:
        port, second_port = self._ports[name]
        if name in self.etcd_members:
            peers = {each: self._ports[each][1] for each in self.etcd_members}
            return servers.etcd(self.folder, name, port, peers)
        if name == NAME_SERVER:
            return servers.name_server(self.folder, port=port)
        if name in self.controllers:
            return servers.controller(self.folder, name=name, port=port, state=self._state())
        settings: dict[str, object] = {
            "brokerName": BROKER_NAME,
            "listenPort": port,
            "haListenPort": second_port,
            "enableControllerMode": "true",
            "controllerAddr": ";".join(self._path(name, each) for each in self.controllers),
            "namesrvAddr": self.namesrv,
        }
        return servers.broker(self.folder, name, settings | self._settings)

    def _path(self, source: str, target: str) -> str:
        """Where a process finds another."""
        proxies = self.links.between(source, target)
        return proxies[0].address if proxies else self.address(target)

    def _state(self) -> str:
        """Where controllers keep their state."""
        return "etcd:" + ",".join(map(self.address, self.etcd_members)) if self.etcd_members else ""

    # -- who leads -----------------------------------------------------------------------------

    async def leading_controller(self) -> str:
        """Name of the controller that leads."""
        return await self._leader(self.controllers, self._leads_controllers)

    async def leading_etcd(self) -> str:
        """Name of the etcd member that leads."""
        return await self._leader(self.etcd_members, self._leads_etcd)

    async def _leader(self, names: Sequence[str], leads: Callable[[str], Awaitable[bool]]) -> str:
        deadline = time.monotonic() + LEADER_SECONDS_MAX
        while time.monotonic() < deadline:
            for name in names:
                with suppress(RoquetError):
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
