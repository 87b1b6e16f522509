"""EtcdGateway: calls to etcd's JSON gateway over HTTP, at whichever of its members answers.

Keys and values are base64, 64-bit numbers are texts. Source: etcd 3.4, api_grpc_gateway.md and
rpc.proto.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from roquet.controller.state_store.interface import StateStoreError
from roquet.model.errors import CallError, CallRefused, ConnectFailed, RemoteProtocolError
from roquet.net.http_client import HttpClient
from roquet.net.tls import Tls

TIMEOUT_MS: Final = 2_000
"""Time for one request: longer than an election among etcd's members, which takes a second or two
at its default settings, and shorter than the 3 s for which brokers wait for an answer."""

DEFINITE_STATUSES: Final = frozenset({400, 401, 403, 404, 429})
"""Statuses of requests that etcd does not carry out: they are wrong, too large or not permitted, or
its space is used up. Other ones also tell of what the gateway gave up waiting for."""

T = TypeVar("T")


class KeyValue(msgspec.Struct, frozen=True, kw_only=True):
    """A key as etcd returns it."""

    key: str
    value: str = ""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0
    """0: the key is bound to no lease."""

    @property
    def name(self) -> str:
        """The key as text; bytes that are none are replaced."""
        return b64decode(self.key).decode(errors="replace")

    @property
    def data(self) -> bytes:
        """The value."""
        return b64decode(self.value)


class ResponseHeader(msgspec.Struct, frozen=True):
    """Part of every response."""

    revision: int = 0


class RangeResponse(msgspec.Struct, frozen=True):
    """Keys of a range."""

    kvs: tuple[KeyValue, ...] = ()


class OperationResponse(msgspec.Struct, frozen=True):
    """Response to one operation of a transaction."""

    response_range: RangeResponse = RangeResponse()


class TransactionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a transaction."""

    header: ResponseHeader
    succeeded: bool = False
    """Whether all comparisons were true."""
    responses: tuple[OperationResponse, ...] = ()


class LeaseResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A lease; etcd leaves `TTL` out for one that it does not know any more."""

    lease_id: int = msgspec.field(name="ID")
    ttl_s: int = msgspec.field(name="TTL", default=0)


class KeepAliveResponse(msgspec.Struct, frozen=True):
    """First message of the stream of renewals."""

    result: LeaseResponse


class EtcdGateway:
    """The gateways of the members of one etcd cluster."""

    def __init__(self, addresses: Sequence[str], tls: Tls | None = None) -> None:
        """`tls` is how members are called; None calls them by plain HTTP. Raises ConfigError."""
        context = None if tls is None else tls.context()
        self._clients = [HttpClient(address, context) for address in addresses]
        """The member that is asked first comes first."""

    async def call(self, path: str, request: dict[str, Any], wanted: type[T]) -> T:
        """Make one call. Raises StateStoreError.

        A member that cannot be connected to is left for the next one. After any other failure the
        next call goes to the next one, and this one is not repeated: unless etcd has refused it, it
        may have been carried out.
        """
        body, errors = msgspec.json.encode(request), list[str]()
        for _ in range(len(self._clients)):
            client = self._clients[0]
            try:
                answer = await client.post(path, body, timeout_ms=TIMEOUT_MS)
                return msgspec.json.decode(answer, type=wanted, strict=False)
            except ConnectFailed as error:
                self._rotate()
                errors.append(str(error))
            except (CallError, RemoteProtocolError, msgspec.MsgspecError) as error:
                self._rotate()
                is_definite = isinstance(error, CallRefused) and error.code in DEFINITE_STATUSES
                raise StateStoreError(
                    f"etcd at {client.address}: {error}", definite=is_definite
                ) from error
        raise StateStoreError(f"etcd does not answer: {'; '.join(errors)}", definite=True)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    def _rotate(self) -> None:
        self._clients.append(self._clients.pop(0))


def encoded(text: str) -> str:
    """A key or a value as the gateway wants it."""
    return b64encode(text.encode()).decode()


def range_of(prefix: str) -> dict[str, str]:
    """The keys that begin with a text."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": encoded(prefix), "range_end": encoded(end)}
