"""The proxy's port under bytes that no client sends: it goes on serving, in little memory."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from tests.cli.servers.test_proxy import query_route
from tests.proxy.test_server import PREFACE

from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.server import ProxyServer
from roquet.testing.cluster import cluster

pytestmark = [pytest.mark.attack, pytest.mark.virtual_time(False)]

GROWTH_MAX = 64 * 1024 * 1024
"""Bytes of memory that an attack may cost, what waits at the attackers included."""


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2."""
    head = len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)
    return head + content


HEADERS = bytes.fromhex("838684418aa0e41d139d09b8f01e0f")
"""POST, / and an authority, by HPACK."""

OPENED_AND_RESET = b"".join(
    frame(1, 4, stream, HEADERS) + frame(3, 0, stream, b"\0\0\0\x08")
    for stream in range(1, 20_001, 2)
)

ATTACKS = {
    "noise": Random(5).randbytes(200_000),
    "noise behind the preface": PREFACE + Random(6).randbytes(200_000),
    "a frame of 16 MB that never comes": PREFACE + b"\xff\xff\xff\0\0\0\0\0\1",
    "settings without end": PREFACE + frame(4, 0, 0, b"\0\4\0\0\xff\xff") * 50_000,
    "streams that are reset at once": PREFACE + OPENED_AND_RESET,
    "headers without end": PREFACE + frame(1, 0, 1, HEADERS) + frame(9, 0, 1, b"\0" * 16_000) * 100,
    "window updates without end": PREFACE + frame(8, 0, 0, b"\0\0\0\1") * 100_000,
    "half a handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "a header of the PROXY protocol": b"PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n" + PREFACE,
    "nothing": b"",
}


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


@asynccontextmanager
async def attacked(port: int, said: bytes) -> AsyncIterator[None]:
    """Twenty connections that send these bytes, and read nothing."""

    async def attack() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        writer.write(said)
        with suppress(ConnectionError):
            await writer.drain()

    writers: list[asyncio.StreamWriter] = []
    tasks = [asyncio.create_task(attack()) for _ in range(20)]
    await asyncio.wait(tasks, timeout=3)
    yield
    for writer in writers:
        writer.transport.abort()
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("self_signed", [True, False])
async def test_clients_are_served_beside_an_attack(name: str, self_signed: bool) -> None:
    config = ProxyConfig(port=0, host="127.0.0.1", self_signed=self_signed)
    async with cluster() as running, ProxyServer(running.namesrv_addr, config) as server:
        before = resident()
        async with attacked(server.port, ATTACKS[name]), asyncio.timeout(10):
            status = await asyncio.to_thread(query_route, server.address, "nowhere")
            assert status.code == pb.TOPIC_NOT_FOUND
        assert resident() - before < GROWTH_MAX


async def test_clients_are_served_beside_handshakes_that_are_never_ended() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="x").do_handshake()
    async with (
        cluster() as running,
        ProxyServer(running.namesrv_addr, config) as server,
        attacked(server.port, outgoing.read()),
        asyncio.timeout(10),
    ):
        status = await asyncio.to_thread(query_route, server.address, "nowhere")
        assert status.code == pb.TOPIC_NOT_FOUND
