"""Real sockets of this machine: a proxy between a client and a target that answers in capitals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType

import pytest

from roquet.testing.tcp_proxy import CHUNK, Direction, TcpProxy

SILENCE_S = 0.05
"""How long a test listens before it calls a connection silent."""


class CapitalsServer:
    """Answers each chunk in capitals, and counts its connections."""

    def __init__(self) -> None:
        self.received = b""
        self.connections = 0
        self.ended = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "CapitalsServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK):
                self.received += chunk
                writer.write(chunk.upper())
                await writer.drain()
        self.ended.set()
        writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(text)
        return await self.reader.readexactly(len(text))

    async def is_silent(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), SILENCE_S)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def connected(proxy: TcpProxy) -> AsyncIterator[Client]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@pytest.fixture
async def target() -> AsyncIterator[CapitalsServer]:
    async with CapitalsServer() as server:
        yield server


@pytest.fixture
async def proxy(target: CapitalsServer) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(target.address) as proxy:
        yield proxy


async def test_bytes_pass_in_both_directions(proxy: TcpProxy) -> None:
    async with connected(proxy) as client:
        assert await client.ask(b"hello") == b"HELLO"
        assert proxy.connections == 1


async def test_many_bytes_pass_unchanged(proxy: TcpProxy) -> None:
    text = bytes(range(ord("a"), ord("z") + 1)) * 40_000
    async with connected(proxy) as client:
        assert await client.ask(text) == text.upper()


async def test_an_end_passes_and_what_was_sent_before_it(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    async with connected(proxy) as client:
        client.writer.write(b"last")
        client.writer.write_eof()
        assert await client.reader.read() == b"LAST"
        assert target.received == b"last"


async def test_a_cut_is_silent_and_the_bytes_come_once_it_is_healed(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    async with connected(proxy) as client:
        assert await client.ask(b"before") == b"BEFORE"
        proxy.cut()
        assert proxy.is_cut
        client.writer.write(b"during")
        assert await client.is_silent()
        assert target.received == b"before"
        proxy.heal()
        assert not proxy.is_cut
        assert await client.reader.readexactly(6) == b"DURING"


async def test_a_cut_from_the_target_lets_requests_through(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    async with connected(proxy) as client:
        await client.ask(b"one")
        proxy.cut(Direction.FROM_TARGET)
        client.writer.write(b"two")
        assert await client.is_silent()
        assert target.received == b"onetwo"
        proxy.heal()
        assert await client.reader.readexactly(3) == b"TWO"


async def test_a_cut_to_the_target_lets_answers_through(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    async with connected(proxy) as client:
        proxy.cut(Direction.FROM_TARGET)
        client.writer.write(b"one")
        assert await client.is_silent()
        proxy.heal()
        proxy.cut(Direction.TO_TARGET)
        assert await client.reader.readexactly(3) == b"ONE"
        client.writer.write(b"two")
        assert await client.is_silent()
        assert target.received == b"one"


async def test_a_client_that_goes_away_during_a_cut_is_missed_only_afterwards(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    async with connected(proxy) as client:
        await client.ask(b"one")
        proxy.cut()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(target.ended.wait(), SILENCE_S)
    proxy.heal()
    await target.ended.wait()


async def test_a_connection_that_begins_during_a_cut_never_reaches_the_target(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    proxy.cut()
    async with connected(proxy) as client:
        client.writer.write(b"too early")
        assert await client.is_silent()
        proxy.heal()
        with pytest.raises(ConnectionError):
            await client.reader.readexactly(1)
    assert (target.connections, target.received) == (0, b"")
    async with connected(proxy) as client:
        assert await client.ask(b"again") == b"AGAIN"


async def test_a_reset_ends_connections_at_both_ends(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    async with connected(proxy) as client:
        await client.ask(b"one")
        proxy.reset()
        with pytest.raises(ConnectionError):
            await client.reader.readexactly(1)
        await target.ended.wait()
    async with connected(proxy) as client:
        assert await client.ask(b"two") == b"TWO"


async def test_without_a_target_connections_are_reset() -> None:
    async with CapitalsServer() as gone:
        address = gone.address
    async with TcpProxy(address) as proxy, connected(proxy) as client:
        with pytest.raises(ConnectionError):
            await client.reader.readexactly(1)
        assert proxy.connections == 0


async def test_a_closed_proxy_holds_no_connection_even_if_it_was_cut(
    target: CapitalsServer,
) -> None:
    async with TcpProxy(target.address) as proxy, connected(proxy) as client:
        await client.ask(b"one")
        proxy.cut()
    await target.ended.wait()
    assert proxy.connections == 0


async def test_a_text_of_the_target_is_replaced_by_one_of_its_length(
    proxy: TcpProxy, target: CapitalsServer
) -> None:
    proxy.replace("LEADER 1", "LEADER 2")
    async with connected(proxy) as client:
        assert await client.ask(b"ask leader 1!") == b"ASK LEADER 2!"
        assert target.received == b"ask leader 1!"


def test_a_text_of_another_length_is_no_replacement() -> None:
    with pytest.raises(ValueError, match="is not as long as"):
        TcpProxy("127.0.0.1:1", replacements={"a": "bc"})
