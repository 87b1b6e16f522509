"""Channel: a client's connection; `await channel.call(call)` returns the call's own reply type."""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from roquet.model.errors import ConnectFailed
from roquet.net.address import address_error
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.connection.peer_connection import Dispatch, PeerConnection
from roquet.net.router import Router
from roquet.net.tls import Tls, tls_error

if TYPE_CHECKING:
    from roquet.wire.signing import Signer

CONNECT_TIMEOUT_MS: Final = 3_000
"""Timeout of a connect in ms: longer than one retransmission of a lost packet, short enough to try
another broker."""


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Security of a client's connections: TLS and request signatures."""

    context: ssl.SSLContext | None = None
    """TLS context; None connects without TLS."""
    server_name: str | None = None
    """Name that the server's certificate must be for; None is the host connected to."""
    signer: "Signer | None" = None

    @property
    def signed(self) -> str:
        """A phrase for error texts: with which access key requests are signed."""
        if self.signer is None:
            return (
                "not signed: give access_key and secret_key, "
                "or set ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY"
            )
        return f"signed with access key {self.signer.access_key!r}"

    def arguments(self, host: str) -> dict[str, Any]:
        """TLS arguments for `loop.create_connection`."""
        if self.context is None:
            return {}
        return {"ssl": self.context, "server_hostname": self.server_name or host}


PLAIN: Final = Security()


def security_of(tls: Tls | None) -> Security:
    """Security of connections that are not signed; None as TLS is plain. Raises ConfigError."""
    return PLAIN if tls is None else Security(context=tls.context(), server_name=tls.server_name)


class Channel(PeerConnection):
    """The client's end of a connection; `router` serves the calls that the server makes on it."""

    __slots__ = ("_doubt", "_made_ms")

    def __init__(self, dispatch: Dispatch, clock: Clock, signer: "Signer | None" = None) -> None:
        super().__init__(dispatch, clock, signer)
        self._doubt = "does it speak TLS alone? Then set tls"
        """Likely cause when the server closes the connection before it has sent anything."""
        self._made_ms = self._received_ms

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, with a likely cause when nothing was ever received."""
        if exc is None and not self._reason and self._received_ms == self._made_ms:
            self._reason = f"the peer closed the connection without a word: {self._doubt}"
        super().connection_lost(exc)

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        router: Router | None = None,
        clock: Clock = SYSTEM_CLOCK,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        security: Security = PLAIN,
    ) -> Self:
        """Connect to a server; raises ConnectFailed."""
        loop = asyncio.get_running_loop()
        dispatch = (router or Router()).dispatch
        secured = security.arguments(host)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, channel = await loop.create_connection(
                    lambda: cls(dispatch, clock, security.signer), host, port, **secured
                )
        except TimeoutError as error:
            raise ConnectFailed(f"{host}:{port} did not answer within {timeout_ms} ms") from error
        except (OSError, UnicodeError) as error:  # a name like "a..b" is a UnicodeError
            why = tls_error(error) if secured else address_error(error)
            raise ConnectFailed(f"cannot connect to {host}:{port}: {why}") from error
        if secured:
            channel._doubt = "does it want a certificate of ours (tls.cert)?"
        return channel

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
