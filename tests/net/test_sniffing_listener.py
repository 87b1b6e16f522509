"""First bytes on real sockets: TLS, plain, PROXY headers, and those who say nothing."""

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.metrics.prometheus_text import Page, parsed

from roquet.metrics.text_format import MetricsPage
from roquet.model.errors import CallError, ConfigError
from roquet.net import server as server_module
from roquet.net import sniffing_listener
from roquet.net.channel import Channel, Security
from roquet.net.connection.server_connection import ServerConnection
from roquet.net.loop import run
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.net.sniffing_listener import SniffingListener
from roquet.net.tls import ClientAuth, ServerTls, Tls, TlsMode
from roquet.wire.calls.route import GetKV, ValueReply
from roquet.wire.fields import encode_call
from roquet.wire.proxy_protocol import SIGNATURE

HERE = Path(__file__).parents[1] / "certificates"
CA = HERE / "ca.pem"
OURS = {"cert": HERE / "client.pem", "key": HERE / "client.key"}

ASK = GetKV(namespace="echo", key="k")
FRAME = encode_call(ASK, opaque=7)
LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911\r\n"
BINARY = SIGNATURE + b"\x21\x11\0\x0c" + bytes([192, 0, 2, 8, 10, 0, 0, 1, 0, 7, 0, 9])


def tls_of(mode: TlsMode, auth: ClientAuth = ClientAuth.NONE) -> ReloadedTls:
    cert, key = HERE / "server.pem", HERE / "server.key"
    return ReloadedTls(ServerTls(cert=cert, key=key, client_ca=CA, client_auth=auth, mode=mode))


def who(call: GetKV, peer: Peer) -> ValueReply:
    assert isinstance(peer, ServerConnection)
    return ValueReply(value=f"{peer.address} {peer.certificate_user}")


def server_of(tls: ReloadedTls | None = None, *proxies: str) -> Server:
    router = Router()
    router.add(GetKV, who)
    server = Server(router, host="127.0.0.1")
    server.tls, server.proxies = tls, proxies
    return server


async def asked(server: Server, **tls: Any) -> str:
    """What a client hears; without settings it speaks no TLS."""
    security = Security(context=Tls(**tls).context() if tls else None)
    async with await Channel.connect("127.0.0.1", server.port, security=security) as channel:
        return str((await channel.call(ASK)).value)


async def spoken(server: Server, *pieces: bytes) -> bytes:
    """What a server answers to bytes that arrive in pieces; empty when it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.002)
        return await reader.read(4096)
    finally:
        writer.close()


def page_of(server: Server) -> Page:
    page = MetricsPage({}, None)
    server.add_openings(page)
    return parsed(b"".join(page.chunks()).decode())


@pytest.mark.parametrize(
    ("mode", "takes_tls", "takes_plain"),
    [
        (TlsMode.DISABLED, False, True),
        (TlsMode.PERMISSIVE, True, True),
        (TlsMode.ENFORCING, True, False),
    ],
)
async def test_the_mode_says_which_connections_are_taken(
    mode: TlsMode, takes_tls: bool, takes_plain: bool
) -> None:
    async with server_of(tls_of(mode)) as server:
        for settings, is_taken in (({"ca": CA}, takes_tls), ({}, takes_plain)):
            if is_taken:
                assert "127.0.0.1" in await asked(server, **settings)
            else:
                with pytest.raises(CallError):
                    await asked(server, **settings)
    if mode is TlsMode.PERMISSIVE:
        shown = page_of(server)
        for kind, count in (("abandoned", 0), ("plain", 1), ("refused", 0), ("tls", 1)):
            assert shown.one("roquet_opened_connections_total", kind=kind) == count
        assert "opened" not in str(page_of(Server(Router())))


async def test_without_tls_and_proxies_first_bytes_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "SniffingListener", None)
    for tls in (None, tls_of(TlsMode.DISABLED)):
        async with server_of(tls) as server:
            assert "127.0.0.1" in await asked(server)


async def test_a_verified_certificate_gives_its_name() -> None:
    async with server_of(tls_of(TlsMode.PERMISSIVE, ClientAuth.OPTIONAL)) as server:
        assert (await asked(server, ca=CA, **OURS)).endswith(" client")
        assert (await asked(server, ca=CA)).endswith(" None")
        assert (await asked(server)).endswith(" None")


async def test_a_refused_connection_is_logged_once_for_each_host_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with server_of(tls_of(TlsMode.ENFORCING, ClientAuth.REQUIRE)) as server:
        for _ in range(2):
            assert await spoken(server, FRAME) == b""
        strangers = {"cert": HERE / "stranger.pem", "key": HERE / "stranger.key"}
        for certificate in ({}, strangers):
            with pytest.raises(CallError):
                await asked(server, ca=CA, **certificate)
    assert [record.getMessage().partition("refused: ")[2] for record in caplog.records] == [
        "it does not speak TLS, which tls_mode=enforcing asks for",
        "the TLS handshake failed: peer did not return a certificate",
        "its certificate is not trusted (self-signed certificate): see tls_client_ca",
    ]
    assert server.counts.refused == 4
    assert all(vars(record)["client"].startswith("127.0.0.1:") for record in caplog.records)


@pytest.mark.parametrize(
    ("pieces", "address"),
    [
        ([LINE + FRAME], b"192.0.2.7:56324"),
        ([LINE[:2], LINE[2:9], LINE[9:-1], LINE[-1:] + FRAME[:3], FRAME[3:]], b"192.0.2.7:56324"),
        ([BINARY + FRAME], b"192.0.2.8:7"),
        ([BINARY[:5], BINARY[5:20], BINARY[20:], FRAME], b"192.0.2.8:7"),
        ([b"PROXY UNKNOWN\r\n", FRAME], b"127.0.0.1:"),
        ([FRAME], b"127.0.0.1:"),
    ],
)
async def test_a_trusted_proxy_names_the_client(pieces: list[bytes], address: bytes) -> None:
    async with server_of(None, "10.0.0.0/8", "127.0.0.1") as server:
        assert address in await spoken(server, *pieces)


async def test_a_proxy_header_comes_before_tls() -> None:
    context = Tls(ca=CA).context()
    async with server_of(tls_of(TlsMode.ENFORCING), "127.0.0.1") as server:
        plain = socket.create_connection(("127.0.0.1", server.port))
        plain.sendall(BINARY)
        plain.setblocking(False)
        reader, writer = await asyncio.open_connection(
            sock=plain, ssl=context, server_hostname="127.0.0.1"
        )
        writer.write(FRAME)
        assert b"192.0.2.8:7" in await reader.read(4096)
        writer.transport.abort()
        assert await spoken(server, LINE + FRAME) == b""


@pytest.mark.parametrize(
    ("proxies", "begun", "text"),
    [
        (["10.0.0.0/8"], LINE, "it sends a PROXY header, and is no trusted proxy"),
        (["127.0.0.0/8"], b"PROXY TCP4 x y 1 2\r\n", "a PROXY header that cannot be read"),
        (["127.0.0.0/8"], b"\r\n\r\nGET", "no PROXY header begins with"),
    ],
)
async def test_a_header_of_others_or_that_is_none_ends_the_connection(
    proxies: list[str], begun: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_of(None, *proxies) as server:
        assert await spoken(server, begun + FRAME) == b""
        assert "127.0.0.1:" in await asked(server)
    assert text in caplog.text


async def test_health_checks_that_only_connect_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with server_of(tls_of(TlsMode.ENFORCING)) as server:
        for _ in range(3):
            socket.create_connection(("127.0.0.1", server.port)).close()
        assert "127.0.0.1" in await asked(server, ca=CA)
    assert caplog.records == []


# Those who say nothing.


class Greeter(asyncio.Protocol):
    """Says something to whom it serves."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"!")


Connect = Callable[[], Awaitable[socket.socket]]


@asynccontextmanager
async def listening(**limits: int) -> AsyncIterator[tuple[SniffingListener, Connect]]:
    """A listener that takes TLS alone, and a function that connects to it."""
    loop, clients = asyncio.get_running_loop(), list[socket.socket]()
    limited: Any = limits
    listener = SniffingListener(lambda _: Greeter(), tls_of(TlsMode.ENFORCING), **limited)
    await listener.listen("127.0.0.1", 0, 100)

    async def connect() -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        clients.append(client)
        await loop.sock_connect(client, listener.sockets[0].getsockname())
        return client

    try:
        yield listener, connect
    finally:
        listener.close()
        for client in clients:
            client.close()


async def handshake(client: socket.socket) -> None:
    """Open TLS on a connection, and close it once it is served."""
    reader, writer = await asyncio.open_connection(
        sock=client, ssl=Tls(ca=CA).context(), server_hostname="127.0.0.1"
    )
    assert await reader.read(1) == b"!"
    writer.transport.abort()


def hello() -> bytes:
    """What a client of TLS says first."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        Tls(ca=CA).context().wrap_bio(received, sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()


@pytest.mark.parametrize("said", [b"", b"\x16\x03", hello()])
async def test_a_handshake_has_its_time(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(opening_ms=40) as (listener, connect):
        client = await connect()
        client.setblocking(True)
        client.sendall(said)
        while await asyncio.to_thread(client.recv, 4096):
            pass
        assert (listener.opening, listener.counts.abandoned) == (0, 1)
    assert "it sent no request and no handshake for 40 ms" in caplog.text


async def test_a_connection_that_sends_one_byte_is_looked_at_more_and_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[bytes] = []
    monkeypatch.setattr(sniffing_listener, "begins_header", looks.append)
    async with listening(opening_ms=300) as (listener, connect):
        (await connect()).send(b"P")
        await asyncio.sleep(0.4)
        assert listener.counts.abandoned == 1
    assert 2 <= len(looks) <= 6


async def test_a_connection_that_its_system_gives_up_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object) -> None:  # as macOS says of a connection that was reset
        raise OSError(errno.EINVAL, "Invalid argument")

    async with listening() as (listener, connect):
        client = await connect()
        monkeypatch.setattr(socket.socket, "setsockopt", gone)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, hello())
        with suppress(ConnectionResetError):
            assert await loop.sock_recv(client, 1) == b""
        assert (listener.opening, listener.counts.refused) == (0, 1)


async def test_the_oldest_silent_connection_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffing_listener, "OPENING_SPARED_MS", 0)
    async with listening(opening_max=3) as (listener, connect):
        silent = [await connect() for _ in range(9)]
        await handshake(await connect())
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(silent[0], 1) == b""
        assert (listener.counts.tls, listener.counts.abandoned) == (1, 7)
        assert listener.opening == 2


async def test_young_connections_are_spared_and_others_wait_for_their_place() -> None:
    async with listening(opening_max=2) as (listener, connect):
        first, second = await connect(), await connect()
        waiting = asyncio.create_task(handshake(await connect()))
        await asyncio.sleep(0.02)
        assert (listener.opening, waiting.done()) == (2, False)
        first.close()
        await waiting
        await handshake(second)
        assert (listener.counts.tls, listener.counts.abandoned) == (2, 0)


async def test_waiting_connections_get_the_place_of_one_that_stays_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sniffing_listener, "OPENING_SPARED_MS", 30)
    async with listening(opening_max=1) as (listener, connect):
        await connect()
        await handshake(await connect())
        assert (listener.counts.tls, listener.counts.abandoned) == (1, 1)


async def test_without_descriptors_nothing_is_accepted_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sniffing_listener, "PAUSE_MS", 20)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with listening() as (listener, _):
        client = socket.create_connection(listener.sockets[0].getsockname())
        client.setblocking(False)
        os.close(free := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            while not caplog.records:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await handshake(client)
        assert listener.counts.tls == 1
    assert "new connections are refused: none can be accepted now: Too many open" in caplog.text


async def test_connections_beyond_the_descriptors_are_closed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(descriptor_max=1) as (listener, connect):
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(await connect(), 1) == b""
        assert listener.opening == 0
    assert "there are too many connections" in caplog.text


async def test_a_closed_listener_ends_what_is_not_open_yet() -> None:
    async with listening() as (listener, connect):
        early, late = await connect(), None
        while not listener.opening:  # noqa: ASYNC110
            await asyncio.sleep(0)
        late = await connect()
        listener.close()
        loop = asyncio.get_running_loop()
        for client in (early, late):
            with suppress(ConnectionResetError):
                assert await loop.sock_recv(client, 1) == b""
        while listener.opening:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_port_in_use_is_reported() -> None:
    async with listening() as (listener, _):
        port = listener.sockets[0].getsockname()[1]
        server = server_of(tls_of(TlsMode.ENFORCING))
        other = Server(Router(), host="127.0.0.1", port=port)
        other.tls = server.tls
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            await other.start()


async def test_all_addresses_of_a_host_have_one_port() -> None:
    server = Server(Router(), host="")
    server.tls = tls_of(TlsMode.ENFORCING)
    async with server:
        assert server.port in server.ports


def test_it_works_on_the_loop_of_our_servers() -> None:
    async def conversation() -> None:
        async with server_of(tls_of(TlsMode.PERMISSIVE, ClientAuth.OPTIONAL), "127.0.0.1") as one:
            assert (await asked(one, ca=CA, **OURS)).endswith(" client")
            assert b"192.0.2.7:56324" in await spoken(one, LINE[:20], LINE[20:] + FRAME)
        await test_the_mode_says_which_connections_are_taken(TlsMode.ENFORCING, True, False)

    run(conversation())
