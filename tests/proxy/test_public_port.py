"""The proxy's port: every kind of connection, and whose it is."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from roquet.metrics.text_format import MetricsPage
from roquet.model.errors import ConfigError
from roquet.net import loop
from roquet.net.tls import ServerTls, TlsMode
from roquet.proxy import public_port
from roquet.proxy.config import ProxyConfig
from roquet.proxy.public_port import (
    INNER,
    PREFIX,
    PublicPort,
    RelayEnd,
    remove_left_directories,
    self_signed_tls,
)
from roquet.rules.proxy.status import ProxyRefusal

pytestmark = pytest.mark.virtual_time(False)

SOURCE_V1 = b"PROXY TCP4 10.0.0.7 10.0.0.1 4711 8081\r\n"
SOURCE_V2 = (
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x07\x0a\x00\x00\x01\x12\x67\x1f\x91"
)


class Served:
    """A port, and gRPC's server behind it, which answers with the client's address."""

    def __init__(self, public: PublicPort, port: int) -> None:
        self.public, self.port = public, port

    async def ask(self, channel: grpc.aio.Channel) -> str:
        async with channel:
            ask: Any = channel.unary_unary("/x.Y/Address")
            return str(await ask(b"", timeout=5), "utf-8")


def new(directory: Path) -> Path:
    directory.mkdir()
    return directory


@asynccontextmanager
async def serving(directory: Path, **settings: Any) -> AsyncIterator[Served]:
    new(directory)
    public = PublicPort(ProxyConfig(port=0, host="127.0.0.1", **settings), directory)
    server = grpc.aio.server()

    async def address(_request: bytes, context: Any) -> bytes:
        try:
            return public.address_of(context.peer()).encode()
        except ProxyRefusal as error:
            return str(error).encode()

    method: Any = grpc.unary_unary_rpc_method_handler(address)
    handlers = grpc.method_handlers_generic_handler("x.Y", {"Address": method})
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(public.inner)
    await server.start()
    port = await public.listen()
    yield Served(public, port)
    public.close()
    await server.stop(0)
    for _ in range(500):
        if not public.connections:
            break
        await asyncio.sleep(0.01)
    assert not public.connections


def test_directories_of_killed_proxies_are_removed_and_those_of_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TemporaryDirectory() as place:  # not `tmp_path`: paths of sockets have a limit
        monkeypatch.setattr(public_port, "gettempdir", lambda: place)
        killed, alive, new_one = (new(Path(place) / f"{PREFIX}{name}") for name in "abc")
        (killed / "certificate.pem").touch()
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as dead:
            listening.bind(str(alive / INNER))
            listening.listen(0)
            dead.bind(str(killed / INNER))
            for _ in range(4):  # the backlog is full then
                remove_left_directories()
        assert [one.exists() for one in (killed, alive, new_one)] == [False, True, True]


@asynccontextmanager
async def prefixed(port: int, prefix: bytes) -> AsyncIterator[int]:
    """A load balancer that writes a header in front of each connection."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", port)
        onward.write(prefix)
        await asyncio.gather(pipe(reader, onward), pipe(there, writer), return_exceptions=True)

    server = await asyncio.start_server(passed_on, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def plain(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


def secured(directory: Path) -> Callable[[int], grpc.aio.Channel]:
    def channel(port: int) -> grpc.aio.Channel:
        trusted = (directory / "certificate.pem").read_bytes()
        return grpc.aio.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(trusted))

    return channel


async def test_one_port_takes_tls_and_plain_connections_and_tells_whose_they_are(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "p") as served:
        for channel in (plain, secured(tmp_path / "p")):
            assert (await served.ask(channel(served.port))).startswith("127.0.0.1:")
        page = MetricsPage({})
        served.public.add_openings(page)
        text = b"".join(page.chunks()).decode()
        assert 'kind="plain"} 1.0' in text
        assert 'kind="tls"} 1.0' in text


@pytest.mark.parametrize("header", [SOURCE_V1, SOURCE_V2])
async def test_a_trusted_load_balancer_names_the_client(tmp_path: Path, header: bytes) -> None:
    trusted = ("127.0.0.1",)
    async with (
        serving(tmp_path / "p", proxy_protocol_from=trusted) as served,
        prefixed(served.port, header) as port,
    ):
        for channel in (plain, secured(tmp_path / "p")):
            assert await served.ask(channel(port)) == "10.0.0.7:4711"


async def test_strangers_cannot_name_another_client(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as served, prefixed(served.port, SOURCE_V1) as port:
        with pytest.raises(grpc.aio.AioRpcError):
            await served.ask(plain(port))


async def test_a_connection_that_has_not_come_by_the_port_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as served:
        channel = grpc.aio.insecure_channel(served.public.inner)
        assert await served.ask(channel) == "this connection has not come by the proxy's port"


async def test_a_certificate_of_the_settings_may_enforce_tls(tmp_path: Path) -> None:
    made = self_signed_tls(tmp_path)
    tls = ServerTls(cert=made.cert, mode=TlsMode.ENFORCING)
    async with serving(tmp_path / "p", tls=tls) as served:
        assert await served.ask(secured(tmp_path)(served.port))
        with pytest.raises(grpc.aio.AioRpcError):
            await served.ask(plain(served.port))


async def test_handshakes_offer_http_2(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as served:
        context = ssl.create_default_context(cafile=str(tmp_path / "p" / "certificate.pem"))
        context.set_alpn_protocols(["h2"])
        _, writer = await asyncio.open_connection("localhost", served.port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()


async def test_a_client_that_hangs_up_before_it_is_relayed_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as served:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"PRI")
            writer.transport.abort()
        await asyncio.sleep(0.2)
        assert served.public.connections == 0


async def test_clients_are_cut_off_while_grpc_serves_none(tmp_path: Path) -> None:
    public = PublicPort(ProxyConfig(port=0, host="127.0.0.1"), new(tmp_path / "p"))
    port = await public.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PRI * HTTP/2.0")
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()
    public.close()
    assert public.connections == 0


class Reading(asyncio.Transport):
    """A transport that notes whether it reads and whether it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.ended = True, ""

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return bool(self.ended)

    def write(self, data: Any) -> None:
        assert not self.ended, data

    def close(self) -> None:
        self.ended = "in order"

    def abort(self) -> None:
        self.ended = "aborted"


async def test_an_end_that_does_not_read_is_waited_for_and_cut_off_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(public_port, "CLOSE_S", 0)
    near, far = RelayEnd(), RelayEnd()
    near.other, far.other = far, near
    near.connection_made(Reading())
    far.connection_made(transport := Reading())
    near.pause_writing()
    assert not transport.reads
    near.resume_writing()
    assert transport.reads
    near.connection_lost(None)
    assert transport.ended == "in order"
    near.resume_writing()
    near.data_received(b"late")  # uvloop's transports refuse to be written to
    await asyncio.sleep(0.01)
    assert transport.ended == "aborted"


def test_it_works_on_the_loop_of_our_servers(tmp_path: Path) -> None:
    async def both() -> None:
        async with serving(tmp_path / "p") as served:
            for channel in (plain, secured(tmp_path / "p")):
                assert (await served.ask(channel(served.port))).startswith("127.0.0.1:")

    loop.run(both())


async def test_a_relay_that_fails_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "p") as served:
        (tmp_path / "p" / INNER).unlink()  # as a program that cleans up may
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"PRI * HTTP/2.0")
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
    assert caplog.text.count(f"{INNER}: [Errno 2] No such file or directory; trying again") == 1


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as served:
        config = ProxyConfig(port=served.port, host="127.0.0.1")
        with pytest.raises(ConfigError, match=r"already in use.*choose another one"):
            await PublicPort(config, new(tmp_path / "q")).listen()
