"""Attacks on the ports of a replicated group: for replicas at the master, and of the controller.

Strangers name the ids of living brokers, hold connections open, tell of epochs that never were and
apply for ids. Meanwhile each message has to be acknowledged, and the group to heal after a loss.
In virtual time: an attack of a minute takes a second.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

import pytest
from tests.attack.conftest import Depth
from tests.conversation.failover_group import CONTROLLER, Group, group

from roquet.model.errors import CallError
from roquet.net.channel import Channel
from roquet.testing.clock import in_virtual_time
from roquet.wire.call import Call
from roquet.wire.calls.controller import (
    ApplyBrokerId,
    ElectMaster,
    RegisterWithController,
)
from roquet.wire.calls.route import BrokerHeartbeat
from roquet.wire.replication.epoch_stream import (
    ReplicaHandshake,
    encode_replica_handshake,
    encode_replica_report,
)

pytestmark = pytest.mark.attack

STRANGER: Final = "10.9.9.9"

REPLICA_PORT: Final = 10912

ROUNDS: Final = {"short": 8, "full": 60}


def claims(broker_id: int) -> Iterator[bytes]:
    """First bytes of strangers, some of whom say that they are the replica with this id."""
    for named in (broker_id, 1, 99, 2**62):
        handshake = encode_replica_handshake(ReplicaHandshake(broker_id=named))
        yield handshake
        yield handshake + encode_replica_report(0)
        yield handshake + encode_replica_report(100) * 3
        yield handshake + encode_replica_report(2**40)
        yield handshake * 2
        yield handshake[:9]
    yield from (
        b"",
        bytes(8),
        bytes(64),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02",
        b"\xff" * 99,
    )


class Strangers:
    """Connections of strangers to the port for replicas."""

    def __init__(self, running: Group, rng: Random) -> None:
        self._running = running
        self._rng = rng
        self._held: list[asyncio.StreamWriter] = []

    async def come(self, host: str, sent: bytes, *, stays: bool = False) -> None:
        """Say something, and stay or perhaps hang up."""
        with self._running.network.host(STRANGER):
            _, writer = await asyncio.open_connection(host, REPLICA_PORT)
        writer.write(sent)
        await asyncio.sleep(self._rng.choice((0, 0.01)))
        self._held.append(writer)
        if not stays and self._rng.random() < 0.5:
            writer.transport.abort()

    def go(self) -> None:
        for writer in self._held:
            writer.transport.abort()


@asynccontextmanager
async def strangers(running: Group) -> AsyncIterator[Strangers]:
    made = Strangers(running, Random("strangers"))
    try:
        yield made
    finally:
        made.go()


@pytest.mark.parametrize("count", [2, 3])
@in_virtual_time
async def test_strangers_at_the_port_for_replicas_stop_no_send(count: int, depth: Depth) -> None:
    async with group(count) as running, strangers(running) as attack:
        master = await running.settled(count)
        victim = master % count + 1
        for turn, sent in enumerate(claims(victim)):
            await attack.come(running.host(master), sent)
            for number in range(ROUNDS[depth] // 4):
                reply = await running.send(f"{turn}.{number}")
                assert reply.code == 0, (sent, reply.remark)
                await asyncio.sleep(1)
            assert len(running.members()) == count, sent
        running.check()


@in_virtual_time
async def test_eighty_silent_strangers_keep_no_replica_out(depth: Depth) -> None:
    async with group(2) as running, strangers(running) as attack:
        master = await running.settled(2)
        replica = master % 2 + 1
        for _ in range(ROUNDS[depth] // 8):
            await running.kill(replica)
            await running.settled(1)
            for _ in range(80):
                await attack.come(running.host(master), b"", stays=True)
            await running.start_broker(replica)
            await running.settled(2, seconds=8)
            assert (await running.send(f"{running.loop.clock.now_ms()}")).code == 0


def lies(running: Group, broker_id: int, host: str) -> Iterator[Call[Any]]:
    """Requests to the controller in the name of a broker."""
    named: dict[str, Any] = {
        "cluster_name": "c", "broker_name": "g", "broker_addr": f"{host}:10911",
        "broker_id": broker_id, "heartbeat_timeout_mills": 120_000,
    }  # fmt: skip
    yield BrokerHeartbeat(**named, epoch=2**30, max_offset=2**50)
    yield BrokerHeartbeat(**named, obeyed_epoch=2**30)
    yield BrokerHeartbeat(**named, lease_epoch=2**30)
    yield BrokerHeartbeat(**named, releases_lease=True)
    yield BrokerHeartbeat(
        **named, lease_epoch=1, sync_state_set=str(broker_id), sync_state_set_epoch=999
    )
    yield ElectMaster(cluster_name="c", broker_name="g", broker_id=broker_id, broker_epoch=2**30)
    yield RegisterWithController(
        cluster_name="c", broker_name="g", broker_id=broker_id, broker_address=f"{STRANGER}:1"
    )
    for number in range(20):
        yield ApplyBrokerId(
            cluster_name="c",
            broker_name="g",
            applied_broker_id=broker_id + number * 7,
            register_check_code=f"{STRANGER}:{number};{broker_id}",
        )


async def lie(running: Group, broker_id: int, host: str) -> None:
    """Tell the controller everything in a broker's name, twice a second, over one connection."""
    with running.network.host(STRANGER):
        channel = await Channel.connect(CONTROLLER, 9878, clock=running.loop.clock)
    async with channel:
        while True:
            for call in lies(running, broker_id, host):
                with suppress(CallError):
                    await channel.call(call)
            await asyncio.sleep(0.5)


@in_virtual_time
async def test_strangers_at_an_open_controller_stop_no_send_nor_a_failover(depth: Depth) -> None:
    async with group(3) as running:
        master = await running.settled(3)
        liars = ((1, running.host(1)), (2, running.host(2)), (77, STRANGER))
        attack = [asyncio.create_task(lie(running, *liar)) for liar in liars]
        for number in range(ROUNDS[depth]):
            assert (await running.send(f"{number}")).code == 0
            await asyncio.sleep(1)
        assert running.master() == master
        await running.kill(master)
        await running.until(lambda: running.master() not in {None, master})
        await running.send_on(["after"])
        await running.start_broker(4)
        await running.settled(3)
        for each in attack:
            each.cancel()
        await asyncio.gather(*attack, return_exceptions=True)
        await running.start_broker(master)
        await running.settled(4)
        running.check()
