"""Caller: the client of one request, as its metadata and its connection show it."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from roquet.rules.proxy.status import ProxyRefusal, StatusCode

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
VERSION: Final = "x-mq-client-version"

CLIENT_ID_LENGTH_MAX: Final = 1_024
WORD_LENGTH_MAX: Final = 64
"""Characters of a language or a version: what is longer is cut."""


class Caller(msgspec.Struct, frozen=True):
    """The client of one request."""

    client_id: str
    language: str
    """As the client says it; Node's calls itself HTTP."""
    version: str
    address: str
    """`ip:port`; empty for a connection that has none."""
    left_ms: int | None
    """Time until the request's deadline; None without one."""
    user: str = ""
    """Name of the user who signed the request; empty without access control."""


def caller_of(
    metadata: Mapping[str, str], address: str, left_s: float | None, user: str = ""
) -> Caller:
    """The caller of a request; raises ProxyRefusal when it does not say its client id."""
    client_id = metadata.get(CLIENT_ID, "")
    if not client_id or client_id.isspace():
        raise ProxyRefusal(
            StatusCode.CLIENT_ID_REQUIRED, f"the header {CLIENT_ID} with the client's id is missing"
        )
    left_ms = None if left_s is None else max(int(left_s * 1_000), 0)
    if len(client_id) > CLIENT_ID_LENGTH_MAX:
        text = f"a client's id has {CLIENT_ID_LENGTH_MAX} characters at most"
        raise ProxyRefusal(StatusCode.BAD_REQUEST, text)
    language, version = (metadata.get(name, "")[:WORD_LENGTH_MAX] for name in (LANGUAGE, VERSION))
    return Caller(client_id, language, version, address, left_ms, user)


def address_of(peer: str) -> str:
    """`ip:port` of a peer as gRPC writes it: `ipv4:10.0.0.1:4711`, `ipv6:%5B::1%5D:4711`."""
    scheme, _, address = peer.partition(":")
    return unquote(address) if scheme in ("ipv4", "ipv6") else ""
