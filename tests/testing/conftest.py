"""Protocols that record what they receive, at both ends of connections in memory."""

import asyncio

from roquet.net.memory_transport import MemoryTransport
from roquet.testing.clock import this_loop
from roquet.testing.network import Network


class RecordingProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.received: list[tuple[int, bytes]] = []
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.append((this_loop().clock.monotonic_ms(), data))

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
        return b"".join(data for _, data in self.received)


async def pair(
    network: Network, host: str = "10.0.0.1"
) -> tuple[RecordingProtocol, RecordingProtocol]:
    """Both ends of one connection, ours first."""
    far = RecordingProtocol()
    with network.host(host):
        listener = await network.create_server(lambda: far, "0.0.0.0", 0)
    port = listener.sockets[0].getsockname()[1]
    _, near = await network.create_connection(RecordingProtocol, host, port)
    return near, far
