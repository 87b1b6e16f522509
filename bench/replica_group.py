"""A library: brokers that replicate, name servers and controllers, ours or genuine, as processes.

Nothing but this machine's loopback is listened on. Processes are ended by SIGKILL: what they have
stored is thrown away. Linux only.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tools" / "fixtures"), str(HERE.parent / "src"), str(HERE)]

from system import ROQUET  # noqa: E402

import genuine  # noqa: E402
from roquet.admin.client import AdminClient  # noqa: E402
from roquet.model.errors import CallError, RoquetError  # noqa: E402
from roquet.model.settings import join_address  # noqa: E402
from roquet.net.channel import Channel  # noqa: E402
from roquet.wire.calls.admin.stats import GetHaStatus, GetRuntimeInfo, HaStatus  # noqa: E402
from roquet.wire.calls.bodies import KVTable  # noqa: E402
from roquet.wire.calls.controller import GetControllerMetadata  # noqa: E402
from roquet.wire.calls.send import Send  # noqa: E402
from roquet.wire.codes import ResponseCode  # noqa: E402
from roquet.wire.fastjson import codec  # noqa: E402

OURS: Final = "ours"
GENUINE: Final = "genuine"

WAIT_SECONDS_MAX: Final = 120
"""A genuine broker that missed its master's address learns it with the next registration, up to
30 s later; a machine may be busy."""

LOOK_S: Final = 0.05
"""Between two questions whether something has come true."""

PROBE_S: Final = 0.005
"""Between a refused send and the next one: the resolution of what a failover takes."""

CONNECT_MS: Final = 1_000

Address = tuple[str, int]


@dataclass(frozen=True)
class Program:
    """A server that can be started, again and again."""

    command: Sequence[str]
    ready: str
    """Text of its output once it serves."""


@dataclass(frozen=True)
class Broker:
    """A broker that can be started: in a process of its name, at fixed ports."""

    name: str
    address: Address
    program: Program


# -- programs ------------------------------------------------------------------------------------


def name_server(side: str, folder: Path, port: int) -> Program:
    """A name server."""
    if side == OURS:
        return Program([*ROQUET, "namesrv", "--port", str(port)], "ready")
    config = _written(folder / "namesrv.conf", {"listenPort": str(port)})
    command = genuine.java("namesrv.NamesrvStartup", "-c", str(config), heap="256m")
    return Program(command, "boot success")


def controller(side: str, folder: Path, port: int) -> Program:
    """A controller that is alone and keeps its state in a file."""
    if side == OURS:
        command = [*ROQUET, "controller", "--port", str(port), "--host", "127.0.0.1"]
        command += ["--advertise", "127.0.0.1", "--store", f"file:{folder / 'controller-state'}"]
        return Program(command, "ready")
    settings = {
        "controllerDLegerGroup": "g1",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(folder / "controller-state"),
        "mappedFileSize": "10485760",
    }
    config = _written(folder / "controller.conf", settings)
    command = genuine.java("controller.ControllerStartup", "-c", str(config), heap="192m")
    return Program(command, "boot success")


def broker(side: str, folder: Path, name: str, *, heap: str = "1g", **settings: str) -> Broker:
    """A broker with its store in `folder/NAME/store`; `settings` are genuine keys of broker.conf.

    `heap` is Java's.
    """
    port = genuine.free_port()
    store = folder / name / "store"
    own = {"bindAddress": "127.0.0.1", "vip_port": "false"}
    theirs = {"brokerIP2": "127.0.0.1", "storePathCommitLog": str(store / "commitlog")}
    config = {
        "brokerName": "bench",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(genuine.free_port()),
        "storePathRootDir": str(store),
        "autoCreateTopicEnable": "true",
        **(own if side == OURS else theirs),
        **settings,
    }
    path = _written(folder / f"{name}.conf", config)
    if side == OURS:
        program = Program([*ROQUET, "broker", "--config", str(path)], "ready")
    else:
        command = genuine.java("broker.BrokerStartup", "-c", str(path), heap=heap)
        program = Program(command, "boot success")
    return Broker(name, ("127.0.0.1", port), program)


def replica(side: str, folder: Path, namesrv: str) -> Broker:
    """A replica with a fixed role; its master is registered before it is started."""
    return broker(side, folder, "replica", brokerRole="SLAVE", brokerId="1", namesrvAddr=namesrv)


def _written(path: Path, settings: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    return path


class Processes:
    """Running servers by name; all end with the block, frozen ones too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, tuple[contextlib.ExitStack, subprocess.Popen[bytes]]] = {}

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self._running]:
            self.kill(name)

    def launch(self, name: str, program: Program) -> None:
        """Start a server; it may not serve yet when this returns."""
        home = self.folder / name / "home"
        home.mkdir(parents=True, exist_ok=True)
        stack = contextlib.ExitStack()
        child = stack.enter_context(genuine.process(program.command, home, self._log(name)))
        self._running[name] = stack, child

    def wait_ready(self, name: str, program: Program) -> None:
        """Wait until a server that was launched serves. Raises RuntimeError."""
        genuine.wait_for(self._log(name), program.ready, self._running[name][1])

    def start(self, name: str, program: Program) -> None:
        """Start a server, and wait until it serves."""
        self.launch(name, program)
        self.wait_ready(name, program)

    def start_name_server(self, side: str) -> str:
        """Start a name server of a side; gives its HOST:PORT."""
        port = genuine.free_port()
        self.start("namesrv", name_server(side, self.folder, port))
        return f"127.0.0.1:{port}"

    def start_master(self, master: Broker, namesrv: str) -> None:
        """Start a master, and wait until a name server tells replicas of it."""
        self.start(master.name, master.program)
        asyncio.run(wait_until_registered(master, namesrv))

    def start_brokers(self, brokers: Sequence[Broker]) -> None:
        """Start brokers side by side, and wait until all of them serve."""
        for each in brokers:
            self.launch(each.name, each.program)
        for each in brokers:
            self.wait_ready(each.name, each.program)

    def pid(self, name: str) -> int:
        """Its process id."""
        return self._running[name][1].pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a server."""
        self._running[name][1].send_signal(number)

    def kill(self, name: str) -> None:
        """End a server by SIGKILL."""
        stack, child = self._running.pop(name)
        child.kill()
        child.wait()
        stack.close()

    def _log(self, name: str) -> Path:
        return self.folder / name / "output.log"


# -- questions -----------------------------------------------------------------------------------


async def ha_status(channel: Channel) -> HaStatus:
    """How far a broker's replicas are, or the broker itself as a replica (907)."""
    return codec.loads((await channel.call(GetHaStatus())).body, HaStatus)


async def runtime_info(channel: Channel) -> dict[str, str]:
    """State of a broker in words and numbers (28)."""
    return dict(codec.loads((await channel.call(GetRuntimeInfo())).body, KVTable).table)


async def wait_until_registered(master: Broker, namesrv: str) -> None:
    """Wait until a name server knows a master."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), AdminClient(namesrv) as admin:
        while not await _is_registered(admin, master):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def _is_registered(admin: AdminClient, master: Broker) -> bool:
    with contextlib.suppress(RoquetError):
        groups = (await admin.cluster()).broker_addr_table.values()
        return any(join_address(*master.address) in each.broker_addrs.values() for each in groups)
    return False


async def wait_until_followed(master: Broker) -> None:
    """Wait until one replica has all of the master's log."""
    async with (
        asyncio.timeout(WAIT_SECONDS_MAX),
        await Channel.connect(*master.address) as channel,
    ):
        while not await _is_followed(channel):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def _is_followed(channel: Channel) -> bool:
    replicas = (await ha_status(channel)).ha_connection_info
    return any(each.in_sync and each.diff <= 0 for each in replicas)


async def elected(brokers: Sequence[Broker]) -> Broker:
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


async def _status_or_none(asked: Broker) -> HaStatus | None:
    with contextlib.suppress(CallError):
        async with await Channel.connect(*asked.address, timeout_ms=CONNECT_MS) as channel:
            return await ha_status(channel)
    return None


async def wait_until_led(port: int) -> None:
    """Wait until a controller at this port says that it leads."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            with contextlib.suppress(CallError):
                async with await Channel.connect("127.0.0.1", port) as channel:
                    if (await channel.call(GetControllerMetadata())).is_leader:
                        return
            await asyncio.sleep(PROBE_S)


async def seconds_until_sent(brokers: Sequence[Broker], cause: Callable[[], None]) -> float:
    """Seconds from a cause until one of the brokers acknowledges a message with SEND_OK.

    All are asked all the time, over connections that are open before.
    """
    channels = [await Channel.connect(*each.address) for each in brokers]
    began = time.perf_counter()
    cause()
    probes = [
        asyncio.create_task(_acknowledged(each.address, channel))
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


async def _acknowledged(address: Address, channel: Channel) -> float:
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
        with contextlib.suppress(CallError):
            if channel.closed:
                channel = await Channel.connect(*address, timeout_ms=CONNECT_MS)
            if (await channel.call(call)).code == ResponseCode.SUCCESS:
                return time.perf_counter()
        await asyncio.sleep(PROBE_S)
