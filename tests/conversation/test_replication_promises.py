"""What SEND_OK promises with fixed roles, cell by cell of the table in docs/howto/replicate.md.

A cell is what is lost after the answer: a process (its files stay as they are), a machine (what was
not flushed may go), or the master's disk (its directory is gone, and the replica's is left).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.conversation.promised_logs import (
    LAYOUT,
    NEVER_MS,
    STORE,
    has_message,
    log_of,
    survives_power_loss,
)
from tests.store.conftest import PowerLossFiles, read_bodies

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.net.channel import Channel
from roquet.rules.replication.acknowledgement import BrokerRole, ReplicaAck
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.testing.clock import this_loop
from roquet.testing.cluster import SMALL_BROKER
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode

HERE, THERE = "10.0.0.1", "10.0.0.2"
ALONE, TWO = {"in_sync_replicas": 1}, {"in_sync_replicas": 2}
NO_WAIT = "WAIT\x01false\x02"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, the answer, and where the message is certain to be afterwards."""

    master: dict[str, Any]
    replica: dict[str, Any] = {}
    properties: str = ""
    is_parted: bool = False
    """Whether the replica is cut off before the send."""
    code: int = ResponseCode.SUCCESS
    survives_machine: bool = False
    """The loss of power of the master's machine, seen alone."""
    survives_disk: bool = False
    """The loss of the master's directory: the replica's process has it."""
    survives_all: bool = False
    """The loss of the master's directory, and of power at the replica."""


SYNC = {"broker_role": BrokerRole.SYNC_MASTER}
CELLS = {
    "an asynchronous master": Cell(master={}, is_parted=True),
    "a synchronous master that needs its own log alone": Cell(
        master={**SYNC, **ALONE}, is_parted=True
    ),
    "one log that is flushed": Cell(
        master={**ALONE, "sync_flush": True}, is_parted=True, survives_machine=True
    ),
    "two logs": Cell(master={**SYNC, **TWO}, survives_disk=True),
    "two logs, the master's flushed": Cell(
        master={**SYNC, **TWO, "sync_flush": True}, survives_machine=True, survives_disk=True
    ),
    "two logs, the replica's flushed": Cell(
        master={**SYNC, **TWO},
        replica={"replica_ack": ReplicaAck.FLUSHED},
        survives_disk=True,
        survives_all=True,
    ),
    "two logs, and a sender that does not wait": Cell(
        master={**SYNC, **TWO}, properties=NO_WAIT, is_parted=True
    ),
    "two logs, and no replica in time": Cell(
        master={**SYNC, **TWO}, is_parted=True, code=ResponseCode.FLUSH_SLAVE_TIMEOUT
    ),
}


def broker(files: MemoryFiles, host: str, **settings: Any) -> BrokerServer:
    fields = {**SMALL_BROKER, **LAYOUT, "broker_name": "b", "flush_interval": NEVER_MS, "port": 9}
    fields |= {"host": host, "advertise": host, **settings}
    return BrokerServer(BrokerConfig(**fields), this_loop().clock, files=files, rng=Random(1))


async def answered(cell: Cell, here: PowerLossFiles, there: PowerLossFiles) -> int:
    """Send one message; the code of the answer. Files are copied by the caller at that moment."""
    clock, network = this_loop().clock, this_loop().network
    slave = {"broker_role": BrokerRole.SLAVE, "broker_id": 1, "ha_master": f"{HERE}:10"}
    with network.host(HERE):
        await broker(here, HERE, **cell.master, ha_port=10).__aenter__()
        channel = await Channel.connect(HERE, 9, clock=clock)
    with network.host(THERE):
        await broker(there, THERE, **slave, **cell.replica).__aenter__()
    topic = CreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
    await channel.call(topic)
    await clock.sleep(6_000)
    if cell.is_parted:
        network.partition(HERE, THERE)
    call = Send(
        producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"kept",
        properties=cell.properties,
    )  # fmt: skip
    return (await channel.call(call, 5_000)).code


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
async def test_an_answer_promises_what_the_table_says(cell: Cell) -> None:
    images: list[PowerLossFiles] = []

    here, there = PowerLossFiles(), PowerLossFiles()
    assert await answered(cell, here, there) == cell.code
    images.extend((log_of(here), log_of(there)))
    master, replica = images
    assert has_message(master.copy()), "whatever is answered, a kill of the process keeps it"
    assert survives_power_loss(master) is cell.survives_machine
    assert has_message(replica.copy()) is cell.survives_disk
    assert survives_power_loss(replica) is cell.survives_all


@contextmanager
def broker_process(directory: Path, **settings: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a broker in a process of its own, which is killed at the end."""
    config = "".join(f"{key}={value}\n" for key, value in settings.items())
    directory.mkdir()
    (directory / "broker.conf").write_text(config)
    command = [sys.executable, "-m", "roquet", "broker", "--name", "b", "--host", "127.0.0.1"]
    command += ["--data", str(directory), "-c", str(directory / "broker.conf")]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().rpartition("ready at ")[2].strip(), process
        finally:
            process.kill()


def bodies_on_disk(directory: Path) -> list[bytes]:
    store = Store.open(directory, STORE, now_ms=0)
    try:
        return read_bodies(store, "orders")
    finally:
        store.close(0)


@pytest.mark.virtual_time(False)
@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_what_two_logs_acknowledged_is_in_both_when_both_processes_are_killed(
    tmp_path: Path, unused_tcp_port_factory: Any
) -> None:
    port, other = unused_tcp_port_factory(), unused_tcp_port_factory()
    stream = unused_tcp_port_factory()
    common = {**{key: str(value) for key, value in LAYOUT.items()}, "vip_port": "false"}
    master = {**common, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "listenPort": str(port)}
    replica = {**common, "brokerRole": "SLAVE", "brokerId": "1", "listenPort": str(other)}
    replica["haMasterAddress"] = f"127.0.0.1:{stream}"
    replica["haListenPort"] = str(unused_tcp_port_factory())  # the next port may be in use
    here, there = tmp_path / "master", tmp_path / "replica"
    with (
        broker_process(here, **master, haListenPort=str(stream)) as (address, first),
        broker_process(there, **replica) as (_, second),
    ):
        host, _, number = address.rpartition(":")
        async with await Channel.connect(host, int(number)) as channel:
            topic = CreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
            await channel.call(topic)
            sent = []
            for each in range(50):
                body = b"%d" % each
                call = Send(
                    producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=body
                )
                reply = await channel.call(call, 10_000)
                if reply.code == ResponseCode.SUCCESS:
                    sent.append(body)
            os.kill(first.pid, signal.SIGKILL)
            os.kill(second.pid, signal.SIGKILL)
    assert len(sent) > 40
    assert set(sent) <= set(bodies_on_disk(here))
    assert set(sent) <= set(bodies_on_disk(there))
