"""The network in memory: what protocols see of each other through it."""

import asyncio
from contextvars import Context, copy_context

import pytest
from tests.testing.conftest import RecordingProtocol, pair

from roquet.net.channel import Channel
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.testing.clock import this_loop
from roquet.testing.network import DEFAULT_HOST, Network
from roquet.wire.calls.route import GetKV, ValueReply

pytestmark = pytest.mark.virtual_time


async def test_bytes_go_both_ways_in_order() -> None:
    near, far = await pair(this_loop().network)
    for i in range(10):
        near.transport.write(b"%d" % i)
    far.transport.write(b"back")
    await asyncio.sleep(0.001)
    assert (far.text, near.text) == (b"0123456789", b"back")
    assert near.transport.get_extra_info("peername")[0] == "10.0.0.1"
    assert far.transport.get_extra_info("peername") == near.transport.get_extra_info("sockname")


async def test_parted_hosts_hear_nothing_until_it_heals() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.partition("127.0.0.1", "10.0.0.1")
    near.transport.write(b"one")
    far.transport.write(b"two")
    await asyncio.sleep(100)
    assert (near.text, far.text, near.events, far.events) == (b"", b"", [], [])
    network.heal()
    await asyncio.sleep(0)
    assert (near.text, far.text) == (b"two", b"one")


async def test_a_connection_across_a_rift_is_made_when_it_heals() -> None:
    network = this_loop().network
    network.partition("127.0.0.1", "10.0.0.1")
    task = asyncio.create_task(pair(network))
    await asyncio.sleep(100)
    assert not task.done()
    network.heal()
    near, far = await task
    assert near.transport.there == far.transport.here


async def test_hosts_outside_the_partition_are_not_affected() -> None:
    network = this_loop().network
    near, far = await pair(network, "10.0.0.2")
    network.partition("127.0.0.1", "10.0.0.1")
    near.transport.write(b"through")
    await asyncio.sleep(0.001)
    assert far.text == b"through"


async def test_connections_to_a_port_without_listener_are_refused() -> None:
    network = this_loop().network
    with pytest.raises(ConnectionRefusedError):
        await network.create_connection(RecordingProtocol, "127.0.0.1", 1)
    listener = await network.create_server(RecordingProtocol, "127.0.0.1", 7)
    with pytest.raises(OSError, match="in use"):
        await network.create_server(RecordingProtocol, "127.0.0.1", 7)
    listener.close()
    await listener.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await network.create_connection(RecordingProtocol, "127.0.0.1", 7)


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


async def test_the_ends_of_a_killed_host_are_seen_and_it_is_heard_no_more() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.kill("10.0.0.1")
    far.transport.write(b"from beyond")
    await asyncio.sleep(1)
    assert (near.text, near.events) == (b"", ["lost: [Errno 104] connection reset by peer"])
    with pytest.raises(ConnectionRefusedError):
        await network.create_connection(RecordingProtocol, "10.0.0.1", far.transport.here[1])
    with network.host("10.0.0.1"), pytest.raises(ConnectionAbortedError, match="was killed"):
        await network.create_connection(RecordingProtocol, "127.0.0.1", 1)
    network.revive("10.0.0.1")
    near, far = await pair(network)
    near.transport.write(b"again")
    await asyncio.sleep(0.001)
    assert far.text == b"again"


async def test_peers_do_not_notice_a_host_that_fell_silent() -> None:
    network = this_loop().network
    near, _far = await pair(network)
    network.silence("10.0.0.1")
    near.transport.write(b"anyone?")
    network.heal()
    near.transport.write(b"anyone now?")
    await asyncio.sleep(1_000)
    assert near.events == []


async def test_a_slow_host_is_slow_for_all_peers_until_it_heals() -> None:
    loop = this_loop()
    near, far = await pair(loop.network)
    loop.network.slow("10.0.0.1", 200, 200)
    near.transport.write(b"one")
    await asyncio.sleep(1)
    loop.network.heal()
    near.transport.write(b"two")
    await asyncio.sleep(1)
    assert far.received == [(200, b"one"), (1_000, b"two")]


async def test_callbacks_of_a_host_run_as_that_host() -> None:
    network = this_loop().network
    where: list[str] = []

    class HostRecorder(RecordingProtocol):
        def data_received(self, data: bytes) -> None:
            where.append(f"{data.decode()} at {network.this_host()}")
            self.transport.write(b"echo")

    with network.host("10.0.0.1"):
        await network.create_server(HostRecorder, "0.0.0.0", 9)
    with network.host("10.0.0.2"):
        transport, _ = await network.create_connection(RecordingProtocol, "10.0.0.1", 9)
    transport.write(b"heard")
    await asyncio.sleep(0.001)
    assert where == ["heard at 10.0.0.1"]


async def test_one_direction_alone_can_be_held_back() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.partition_one_way("127.0.0.1", "10.0.0.1")
    near.transport.write(b"held")
    far.transport.write(b"through")
    await asyncio.sleep(100)
    assert (near.text, far.text) == (b"through", b"")
    connecting = asyncio.create_task(pair(network))
    await asyncio.sleep(100)
    assert not connecting.done()
    network.heal()
    await connecting
    assert far.text == b"held"


async def test_hosts_that_rejoin_get_what_was_held_back_and_others_do_not() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.partition("127.0.0.1", "10.0.0.1")
    network.partition_one_way("10.0.0.1", "127.0.0.1")
    network.partition("10.0.0.8", "10.0.0.9")
    near.transport.write(b"there")
    far.transport.write(b"back")
    await asyncio.sleep(100)
    assert (near.text, far.text) == (b"", b"")
    network.rejoin("127.0.0.1", "10.0.0.1")
    await asyncio.sleep(0.001)
    assert (near.text, far.text) == (b"back", b"there")
    assert network.is_partitioned("10.0.0.8", "10.0.0.9")


async def test_peers_of_a_silent_host_learn_of_its_end_once_it_is_back() -> None:
    network = this_loop().network
    near, _far = await pair(network)
    network.silence("10.0.0.1")
    near.transport.write(b"anyone?")
    await asyncio.sleep(10)
    network.revive("10.0.0.1")
    assert near.events == []
    near.transport.write(b"and now?")
    await asyncio.sleep(0.001)
    assert near.events == ["lost: [Errno 104] connection reset by peer"]


async def test_a_context_knows_its_host() -> None:
    with this_loop().network.host("10.0.0.7"):
        context = copy_context()
    assert Network.host_of(context) == "10.0.0.7"
    assert Network.host_of(Context()) == DEFAULT_HOST
