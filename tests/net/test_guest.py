"""Clients that do not read, or do not end what they begin, in virtual time."""

import asyncio
from typing import Any

import pytest

from roquet.net import guest as guest_module
from roquet.net import hall as hall_module
from roquet.net.channel import Channel
from roquet.net.router import Router
from roquet.net.server import IDLE_MS, Server
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.route import GetKV, ListKV, PutKV, ValueReply
from roquet.wire.fields import encode_call

HALF: bytes = encode_call(GetKV(namespace="echo", key="k"), opaque=1)[:-3]


@in_virtual_time
async def test_a_client_that_does_not_read_is_not_read_and_at_last_dropped(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guest_module, "GUEST_BUFFER_HIGH", 20_000)
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        transport.pause_reading()
        for opaque in range(10):
            transport.write(encode_call(ListKV(namespace="n"), opaque=opaque))
            await asyncio.sleep(0.001)
        (guest,) = server.peers
        assert transport.get_write_buffer_size() > 0
        await loop.clock.sleep(25_000)
        assert not guest.closed
        await loop.clock.sleep(100_000)
        assert guest.closed
    assert "took none of its answers" in caplog.text


@in_virtual_time
async def test_a_client_that_reads_slowly_gets_everything(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "GUEST_BUFFER_HIGH", 20_000)
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    got: list[int] = []

    class Reader(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            got.append(len(data))
            transport.pause_reading()
            loop.call_later(20, transport.resume_reading)

    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Reader, "127.0.0.1", server.port)
        transport = made[0]
        for opaque in range(20):
            transport.write(encode_call(ListKV(namespace="n"), opaque=opaque))
            await asyncio.sleep(0.001)
        await loop.clock.sleep(500_000)
    assert sum(got) > 20 * 10_000


@in_virtual_time
async def test_who_sends_half_a_frame_and_no_more_is_closed_like_the_silent(router: Router) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        transport.write(HALF)
        await loop.clock.sleep(IDLE_MS + IDLE_MS // 2)
        assert not server.peers


@in_virtual_time
async def test_who_keeps_a_place_for_a_frame_that_it_does_not_end_is_dropped(
    router: Router, kept: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        server._hall.places._size_max = 300_000
        frame = encode_call(PutKV(namespace="n", key="k", value="v", body=bytes(200_000)), opaque=1)
        stalls, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        stalls.write(frame[:10_000])
        await loop.clock.sleep(1_000)
        waits, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        waits.write(frame[:10_000])
        await loop.clock.sleep(1_000)
        waits.write(frame[10_000:])
        await loop.clock.sleep(1_000)
        assert kept == []
        await loop.clock.sleep(IDLE_MS // 2)
        assert kept == ["v"]
        assert stalls.is_closing()
        assert not waits.is_closing()
    assert "it does not end a large frame" in caplog.text


@in_virtual_time
async def test_of_many_clients_that_do_not_read_only_so_many_are_kept(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    monkeypatch.setattr(hall_module, "SETTLE_BYTES", 20_000)
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        server._hall.tally.left = 0
        server._hall.tally._limit = 100_000
        for number in range(10):
            transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
            transport.pause_reading()
            for opaque in range(1 + number):
                transport.write(encode_call(ListKV(namespace="n"), opaque=opaque))
            await asyncio.sleep(0.01)
        async with await Channel.connect("127.0.0.1", server.port, clock=loop.clock) as reads:
            for _ in range(50):
                await reads.call(ListKV(namespace="n"))
            guests: Any = server.peers
            assert sum(guest.untaken for guest in guests) <= 100_000 + 20_000
            assert 4 <= len(guests) < 11
    assert "bytes wait for it, and more than 100000 for all clients" in caplog.text
