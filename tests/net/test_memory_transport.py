"""Connections in memory: their order, their ends and their pauses."""

import asyncio

import pytest
from tests.testing.conftest import pair

from roquet.net.memory_transport import WRITE_BUFFER_HIGH
from roquet.testing.clock import run, this_loop

pytestmark = pytest.mark.virtual_time


async def test_delayed_bytes_do_not_overtake_each_other() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.delay(1, 100)
    for i in range(10):
        near.transport.write(b"%d" % i)
    await asyncio.sleep(1)
    assert far.text == b"0123456789"
    times = [at for at, _ in far.received]
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
        return list(far.received)

    assert run(scene(), seed=1) == run(scene(), seed=1) != run(scene(), seed=2)


async def test_a_dropped_connection_breaks_at_both_ends() -> None:
    network = this_loop().network
    near, far = await pair(network)
    other, _ = await pair(network, "10.0.0.2")
    network.drop("10.0.0.1", "127.0.0.1")
    await asyncio.sleep(0)
    assert near.events == far.events == ["lost: the network dropped it"]
    assert other.events == []
    near.transport.write(b"into the void")


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


async def test_an_abort_resets_the_other_end() -> None:
    near, far = await pair(this_loop().network)
    near.transport.abort()
    await asyncio.sleep(0)
    assert near.events == ["lost: None"]
    assert "reset" in far.events[0]


async def test_a_write_to_a_dead_host_fails_when_the_partition_heals() -> None:
    network = this_loop().network
    near, far = await pair(network)
    network.partition("127.0.0.1", "10.0.0.1")
    near.transport.abort()
    await asyncio.sleep(1)
    assert far.events == []
    network.heal()
    far.transport.write(b"hello?")
    await asyncio.sleep(0)
    assert "reset" in far.events[0]


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
