"""PublicPort: the proxy's port, which takes TLS, plain connections and the PROXY protocol.

    client ──▶ SniffingListener ──▶ TLS ends ──▶ relay ──▶ socket in a private directory ──▶ gRPC

gRPC's own server has one kind of connection a port, and knows no PROXY headers. Each relayed
connection has a name below that directory, by which the client's own address is found again: a
request of any other peer is refused.
"""

import asyncio
import secrets
import shutil
import socket
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from typing import Final, cast

import grpc
from msgspec.structs import replace

from roquet.client.connection.background import ErrorLogThrottle
from roquet.log_records import logger
from roquet.metrics.roquet_metrics import OPENED_CONNECTIONS
from roquet.metrics.text_format import MetricsPage
from roquet.model import settings
from roquet.model.errors import ConfigError
from roquet.net.address import address_error, join_address
from roquet.net.clock import every
from roquet.net.reloaded_tls import RELOAD_MS, ReloadedTls
from roquet.net.server import BACKLOG, DESCRIPTORS_KEPT, descriptors_max
from roquet.net.sniffing_listener import SniffingListener
from roquet.net.tls import ServerTls, TlsMode
from roquet.proxy.config import ProxyConfig
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.self_signed import ORDER, self_signed

log = logger(__name__)

HTTP_2: Final = "h2"
"""Name of HTTP/2 in TLS handshakes, without which gRPC's clients hang up."""

CLOSE_S: Final = 5
"""Time in which a client reads its last bytes when gRPC has ended a connection."""

INNER: Final = "of-the-grpc-server"
"""Name of gRPC's socket, longer than those of connections: paths of sockets have a limit."""

UNIX: Final = "unix:"
"""Begins gRPC's names of sockets in the file system."""


PREFIX: Final = "roquet-proxy-"
"""Begins the names of the private directories, in the system's directory for temporary files."""


def remove_left_directories() -> None:
    """Remove the directories of proxies that were killed: nobody listens in them any more."""
    for directory in Path(gettempdir()).glob(f"{PREFIX}*"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # anybody may make such a directory, with a full backlog
            try:
                probe.connect(str(directory / INNER))
            except ConnectionRefusedError:
                shutil.rmtree(directory, ignore_errors=True)
            except OSError as error:  # it is made just now, or belongs to another user
                log.debug("%s is left alone: %s", directory, error)


def self_signed_tls(directory: Path) -> ServerTls:
    """TLS beside plain connections, with a certificate of this start that vouches for nobody."""
    file = directory / "certificate.pem"
    file.touch(0o600)
    secret, nonce = (secrets.randbelow(ORDER - 1) + 1 for _ in range(2))
    file.write_text(self_signed("roquet", secret, nonce, secrets.randbits(64) + 1))
    return ServerTls(cert=file, mode=TlsMode.PERMISSIVE)


def bind(server: grpc.aio.Server, address: str, setting: str = "port") -> int:
    """Let gRPC listen; returns the port. Raises ConfigError, which begins with the setting."""
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        why = "its path is too long, set TMPDIR" if address.startswith(UNIX) else "it is taken"
        text = f"{setting}: {address} cannot be used ({why}): choose another one"
        raise ConfigError(text) from error


class PublicPort:
    """Listens for clients, and passes their bytes on to gRPC."""

    def __init__(self, config: ProxyConfig, directory: Path) -> None:
        """`directory` belongs to this process alone. Raises ConfigError for TLS without files."""
        self._config = config
        self._directory = directory
        tls = config.tls or (self_signed_tls(directory) if config.self_signed else None)
        self._tls: ReloadedTls | None = None
        if tls is not None and tls.mode is not TlsMode.DISABLED:
            self._tls = ReloadedTls(replace(tls, alpn=(HTTP_2,)))
        self._names = count()
        self.throttle = ErrorLogThrottle(f"relay to {self.inner}")
        """Logs connections that cannot be relayed."""
        self._clients: dict[str, str] = {}
        """Addresses of clients by gRPC's names of their relayed connections."""
        self._loop = asyncio.get_running_loop()
        self._reloads: asyncio.Task[None] | None = None
        self._listener = SniffingListener(
            lambda source: ClientEnd(self, source),
            self._tls,
            config.proxy_protocol_from,
            descriptor_max=descriptors_max() - DESCRIPTORS_KEPT,
        )

    def add_openings(self, page: MetricsPage) -> None:
        """Add connections by how they began to a page of metrics."""
        for kind, opened in self._listener.counts.by_kind().items():
            page.add(OPENED_CONNECTIONS, opened, kind)

    @property
    def connections(self) -> int:
        """Number of connections that are relayed."""
        return len(self._clients)

    @property
    def inner(self) -> str:
        """The address at which gRPC serves the relayed connections."""
        return f"{UNIX}{self._directory / INNER}"

    async def listen(self) -> int:
        """Listen, and return the port. Raises ConfigError when the address cannot be used."""
        host, port = self._config.host, self._config.port
        try:
            await self._listener.listen(host, port, BACKLOG)
        except (OSError, UnicodeError) as error:
            address = settings.join_address(host, port)
            raise ConfigError(
                f"port: {address} cannot be used ({address_error(error)}): choose another one"
            ) from error
        if self._tls is not None:
            reloads = every(RELOAD_MS, self._tls.reload, self._config.clock)
            self._reloads = asyncio.create_task(reloads)
        return cast("int", self._listener.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        self._listener.close()
        if self._reloads is not None:
            self._reloads.cancel()

    def address_of(self, peer: str) -> str:
        """The `ip:port` of a client by its connection's name. Raises ProxyRefusal for others."""
        if (address := self._clients.get(peer)) is None:
            text = "this connection has not come by the proxy's port"
            raise ProxyRefusal(StatusCode.FORBIDDEN, text)
        return address

    async def connect(self, client: "ClientEnd") -> "RelayEnd":
        """Connect to gRPC on behalf of a client. Raises OSError."""
        name = self._directory / str(next(self._names))
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            inner.bind(str(name))
            self._clients[f"{UNIX}{name}"] = client.address
            client.relayed_as = f"{UNIX}{name}"
            await self._loop.sock_connect(inner, self.inner.removeprefix(UNIX))
            _, end = await self._loop.create_unix_connection(lambda: RelayEnd(client), sock=inner)
        except BaseException:
            inner.close()
            raise
        finally:
            name.unlink(missing_ok=True)
        self.throttle.clear()
        return end

    def forget(self, client: "ClientEnd") -> None:
        """Forget a client whose connection has ended."""
        self._clients.pop(client.relayed_as, None)


class RelayEnd(asyncio.Protocol):
    """One end of a relayed connection: the other one writes what it reads."""

    transport: asyncio.Transport

    def __init__(self, other: "RelayEnd | None" = None) -> None:
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of an established connection."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, unless their receiver has gone: uvloop reads on for a moment."""
        assert self.other is not None, "the client is there"
        if not self.other.transport.is_closing():
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Read no more from the other end: this one's peer does not read."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other end again."""
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End the other end, too, once its peer has read what was written."""
        if self.other is not None:
            self.other.transport.close()
            asyncio.get_running_loop().call_later(CLOSE_S, self.other.transport.abort)


class ClientEnd(RelayEnd):
    """The client's end of a relayed connection."""

    relayed_as = ""

    def __init__(self, port: PublicPort, source: str | None) -> None:
        """`source` is the client's `ip:port` as a load balancer names it."""
        super().__init__()
        self._early = b""
        """Bytes that came before gRPC's end was there: uvloop reads on for a moment."""
        self._port = port
        self.address = source or ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to gRPC before anything is read."""
        super().connection_made(transport)
        self.transport.pause_reading()
        if not self.address and (name := transport.get_extra_info("peername")):
            self.address = join_address(name)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, or keep them until they can be."""
        if self.other is None:
            self._early += data
        else:
            super().data_received(data)

    async def _connect(self) -> None:
        try:
            self.other = await self._port.connect(self)
        except OSError as error:  # gRPC stops, or its directory was removed
            self._port.throttle.report(error)
            self.transport.abort()
            return
        if self.transport.is_closing():
            self.other.transport.close()
            self._port.forget(self)
        else:
            super().data_received(self._early)
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End gRPC's end, and forget the client."""
        super().connection_lost(exc)
        self._port.forget(self)
