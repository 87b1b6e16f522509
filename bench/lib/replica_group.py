"""Replicas measured: brokers that replicate, ours or genuine, and how far they are.

Processes are ended by SIGKILL: what they have stored is thrown away. Linux only.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from harness import servers
from harness.ports import HOST
from harness.servers import Server
from roquet.admin.client import AdminClient
from roquet.model.errors import CallError, RoquetError
from roquet.net.channel import Channel
from roquet.wire.calls.admin.stats import GetHaStatus, GetRuntimeInfo, HaStatus
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.controller import GetControllerMetadata
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

WAIT_SECONDS_MAX: Final = 120
"""A genuine broker that missed its master's address learns it with the next registration, up to
30 s later; a machine may be busy."""

LOOK_S: Final = 0.05
"""Between two questions whether something has come true."""

PROBE_S: Final = 0.005
"""Between a refused send and the next one: the resolution of what a failover takes."""

CONNECT_MS: Final = 1_000


def broker(
    side: str, folder: Path, name: str, settings: Mapping[str, object], *, heap: str = "1g"
) -> Server:
    """A broker of the group, which makes the topics that senders ask for."""
    own = {"brokerName": "bench", "autoCreateTopicEnable": "true"}
    return servers.broker(folder, name, own | {**settings}, side=side, heap=heap)


def replica(side: str, folder: Path, namesrv: str) -> Server:
    """A replica with a fixed role; its master is registered before it is started."""
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": namesrv}
    return broker(side, folder, "replica", settings)


class Processes:
    """Servers that were started in a folder; all end with the block, frozen ones too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers: list[Server] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.kill()

    def launch(self, *described: Server) -> None:
        """Start servers; they may not serve yet when this returns."""
        for server in described:
            self._servers.append(server)
            server.launch()

    def start(self, *described: Server) -> None:
        """Start servers side by side, and wait until all of them serve."""
        self.launch(*described)
        for server in described:
            server.wait_ready()

    def start_name_server(self, side: str) -> str:
        """Start a name server of a side; gives its HOST:PORT."""
        server = servers.name_server(self.folder, side=side)
        self.start(server)
        return server.address

    def start_master(self, master: Server, namesrv: str) -> None:
        """Start a master, and wait until a name server tells replicas of it."""
        self.start(master)
        asyncio.run(wait_until_registered(master, namesrv))


# -- questions -----------------------------------------------------------------------------------


async def ha_status(channel: Channel) -> HaStatus:
    """How far a broker's replicas are, or the broker itself as a replica (907)."""
    return codec.loads((await channel.call(GetHaStatus())).body, HaStatus)


async def runtime_info(channel: Channel) -> dict[str, str]:
    """State of a broker in words and numbers (28)."""
    return dict(codec.loads((await channel.call(GetRuntimeInfo())).body, KVTable).table)


async def wait_until_registered(master: Server, namesrv: str) -> None:
    """Wait until a name server knows a master."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), AdminClient(namesrv) as admin:
        while not await _is_registered(admin, master):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def _is_registered(admin: AdminClient, master: Server) -> bool:
    with suppress(RoquetError):
        groups = (await admin.cluster()).broker_addr_table.values()
        return any(master.address in each.broker_addrs.values() for each in groups)
    return False


async def wait_until_followed(master: Server) -> None:
    """Wait until one replica has all of the master's log."""
    async with (
        asyncio.timeout(WAIT_SECONDS_MAX),
        await Channel.connect(HOST, master.port) as channel,
    ):
        while not await _is_followed(channel):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def _is_followed(channel: Channel) -> bool:
    replicas = (await ha_status(channel)).ha_connection_info
    return any(each.in_sync and each.diff <= 0 for each in replicas)


async def elected(brokers: Sequence[Server]) -> Server:
    """The master of a group with a controller, once all its brokers are in sync."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            found = await asyncio.gather(*map(_status_or_none, brokers))
            masters = [
                (each, status)
                for each, status in zip(brokers, found, strict=True)
                if status is not None and status.master
            ]
            if None not in found and len(masters) == 1:
                master, status = masters[0]
                if status.in_sync_slave_nums >= len(brokers) - 1:
                    return master
            await asyncio.sleep(LOOK_S)


async def _status_or_none(asked: Server) -> HaStatus | None:
    with suppress(CallError):
        async with await Channel.connect(HOST, asked.port, timeout_ms=CONNECT_MS) as channel:
            return await ha_status(channel)
    return None


async def wait_until_led(port: int) -> None:
    """Wait until a controller at this port says that it leads."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            with suppress(CallError):
                async with await Channel.connect(HOST, port) as channel:
                    if (await channel.call(GetControllerMetadata())).is_leader:
                        return
            await asyncio.sleep(PROBE_S)


async def seconds_until_sent(brokers: Sequence[Server], cause: Callable[[], None]) -> float:
    """Seconds from a cause until one of the brokers acknowledges a message with SEND_OK.

    All are asked all the time, over connections that are open before.
    """
    channels = [await Channel.connect(HOST, each.port) for each in brokers]
    began = time.perf_counter()
    cause()
    probes = [
        asyncio.create_task(_acknowledged(each.port, channel))
        for each, channel in zip(brokers, channels, strict=True)
    ]
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            done, _ = await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
        return min(probe.result() for probe in done) - began
    finally:
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
        for channel in channels:
            await channel.close()


async def _acknowledged(port: int, channel: Channel) -> float:
    """Send one message again and again; gives when it was acknowledged."""
    call = Send(
        producer_group="bench",
        topic="BenchmarkTest0",
        queue_id=0,
        born_timestamp=1_700_000_000_000,
        properties="WAIT\x01true\x02",
        body=b"x" * 128,
    )
    while True:
        with suppress(CallError):
            if channel.closed:
                channel = await Channel.connect(HOST, port, timeout_ms=CONNECT_MS)
            if (await channel.call(call)).code == ResponseCode.SUCCESS:
                return time.perf_counter()
        await asyncio.sleep(PROBE_S)
