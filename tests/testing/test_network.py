"""The network in memory: what protocols see of each other through it."""

import asyncio
from typing import Any

import pytest

from roquet.net.channel import Channel
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.testing.clock import in_virtual_time, run, this_loop
from roquet.testing.network import WRITE_BUFFER_HIGH, MemoryTransport, Network
from roquet.wire.calls.route import GetKV, ValueReply


class Ear(asyncio.Protocol):
    """Writes down what it is told, and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.events: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport: MemoryTransport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append((this_loop().clock.monotonic_ms(), data))

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> None:
        self.events.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost: {exc}")

    @property
    def text(self) -> bytes:
        return b"".join(data for _, data in self.heard)


async def pair(network: Network, host: str = "10.0.0.1") -> tuple[Ear, Ear]:
    """Both ends of one connection, ours first."""
    far = Ear()
    with network.host(host):
        listener = await network.create_server(lambda: far, "0.0.0.0", 0)
    port = listener.sockets[0].getsockname()[1]
    _, near = await network.create_connection(Ear, host, port)
    return near, far


@in_virtual_time
async def test_bytes_go_both_ways_in_order() -> None:
    near, far = await pair(this_loop().network)
    for i in range(10):
        near.transport.write(b"%d" % i)
    far.transport.write(b"back")
    await asyncio.sleep(0.001)
    assert (far.text, near.text) == (b"0123456789", b"back")
    assert near.transport.get_extra_info("peername")[0] == "10.0.0.1"
    assert far.transport.get_extra_info("peername") == near.transport.get_extra_info("sockname")


@in_virtual_time
async def test_delayed_bytes_do_not_overtake_each_other() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.delay(1, 100)
    for i in range(10):
        near.transport.write(b"%d" % i)
    await asyncio.sleep(1)
    assert far.text == b"0123456789"
    times = [at for at, _ in far.heard]
    assert times == sorted(times)
    assert 0 < times[0] <= times[-1] <= 100


def test_one_seed_is_one_course_of_events() -> None:
    async def scene() -> list[tuple[int, bytes]]:
        network = this_loop().network
        near, far = await pair(network)
        network.delay(0, 1_000)
        for i in range(20):
            near.transport.write(b"%d" % i)
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        return far.heard

    assert run(scene(), seed=1) == run(scene(), seed=1) != run(scene(), seed=2)


@in_virtual_time
async def test_parted_hosts_hear_nothing_until_it_heals() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.part("127.0.0.1", "10.0.0.1")
    near.transport.write(b"one")
    far.transport.write(b"two")
    await asyncio.sleep(100)
    assert (near.text, far.text, near.events, far.events) == (b"", b"", [], [])
    network.heal()
    await asyncio.sleep(0)
    assert (near.text, far.text) == (b"two", b"one")


@in_virtual_time
async def test_a_connection_across_a_rift_is_made_when_it_heals() -> None:
    network = this_loop().network
    network.part("127.0.0.1", "10.0.0.1")
    task = asyncio.create_task(pair(network))
    await asyncio.sleep(100)
    assert not task.done()
    network.heal()
    near, far = await task
    assert near.transport.there == far.transport.here


@in_virtual_time
async def test_others_do_not_feel_the_rift() -> None:
    network = this_loop().network
    near, far = await pair(network, "10.0.0.2")
    network.part("127.0.0.1", "10.0.0.1")
    near.transport.write(b"through")
    await asyncio.sleep(0.001)
    assert far.text == b"through"


@in_virtual_time
async def test_a_dropped_connection_breaks_at_both_ends() -> None:
    network = this_loop().network
    near, far = await pair(network)
    other, _ = await pair(network, "10.0.0.2")
    network.drop("10.0.0.1", "127.0.0.1")
    await asyncio.sleep(0)
    assert near.events == far.events == ["lost: the network dropped it"]
    assert other.events == []
    near.transport.write(b"into the void")


@in_virtual_time
async def test_a_close_delivers_first_what_was_written() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.delay(10, 10)
    near.transport.write(b"last words")
    near.transport.close()
    assert near.transport.is_closing()
    await asyncio.sleep(1)
    assert far.text == b"last words"
    assert (near.events, far.events) == (["lost: None"], ["end", "lost: None"])


@in_virtual_time
async def test_an_abort_resets_the_other_end() -> None:
    near, far = await pair(this_loop().network)
    near.transport.abort()
    await asyncio.sleep(0)
    assert near.events == ["lost: None"]
    assert "reset" in far.events[0]


@in_virtual_time
async def test_who_writes_to_the_dead_is_told_when_the_rift_heals() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.part("127.0.0.1", "10.0.0.1")
    near.transport.abort()
    await asyncio.sleep(1)
    assert far.events == []
    network.heal()
    far.transport.write(b"hello?")
    await asyncio.sleep(0)
    assert "reset" in far.events[0]


@in_virtual_time
async def test_a_full_pipe_asks_the_writer_for_a_pause() -> None:
    near, far = await pair(this_loop().network)
    far.transport.pause_reading()
    assert not far.transport.is_reading()
    near.transport.write(bytes(WRITE_BUFFER_HIGH))
    assert near.events == []
    near.transport.write(b"one more")
    assert near.events == ["pause"]
    assert near.transport.get_write_buffer_size() == WRITE_BUFFER_HIGH + 8
    far.transport.resume_reading()
    await asyncio.sleep(0.001)
    assert near.events == ["pause", "resume"]
    assert len(far.text) == WRITE_BUFFER_HIGH + 8


@in_virtual_time
async def test_where_nobody_listens_connections_are_refused() -> None:
    network = this_loop().network
    with pytest.raises(ConnectionRefusedError):
        await network.create_connection(Ear, "127.0.0.1", 1)
    listener = await network.create_server(Ear, "127.0.0.1", 7)
    with pytest.raises(OSError, match="in use"):
        await network.create_server(Ear, "127.0.0.1", 7)
    listener.close()
    await listener.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await network.create_connection(Ear, "127.0.0.1", 7)


@in_virtual_time
async def test_servers_and_channels_run_on_it_as_they_are() -> None:
    loop = this_loop()
    router = Router()
    router.add(GetKV, lambda call, peer: ValueReply(value=peer.address))
    with loop.network.host("10.0.0.1"):
        server = Server(router, port=10911, clock=loop.clock)
        await server.start()
    loop.network.delay(50, 50)
    with loop.network.host("10.0.0.9"):
        channel = await Channel.connect("10.0.0.1", 10911, clock=loop.clock)
    reply = await channel.call(GetKV(namespace="n", key="k"))
    assert (reply.value or "").startswith("10.0.0.9:")
    assert loop.clock.monotonic_ms() == 150
    await channel.close()
    await server.stop()
