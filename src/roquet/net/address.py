"""Addresses: the text `host:port`, the tuples of sockets, and this machine's own."""

import socket
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from roquet.model import settings
from roquet.model.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

IPV4_ON_IPV6: Final = "::ffff:"
"""Prefix with which an IPv6 socket writes a peer's IPv4 address."""

LOOPBACK: Final = "127.0.0.1"

PORT_MAX: Final = 0xFFFF

TEST_NET_ADDRESS: Final = ("192.0.2.1", 9)
"""An address reserved for documentation (RFC 5737). Connecting a UDP socket to it sends nothing and
shows which of our addresses the route begins at."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address is in brackets.

    UsageError for any other text.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise UsageError(f"{address!r} is not an address like 10.0.0.1:10911")
    return host.removeprefix("[").removesuffix("]"), int(port)


@lru_cache(maxsize=4096)
def host_of(address: str) -> str:
    """The host of an address that a socket or server gave, an IPv6 one without brackets.

    The text is not checked; that of a peer without an address is empty.
    """
    return address.rpartition(":")[0].strip("[]")


def check_port(port: int) -> None:
    """Raise ConfigError for a number on which nobody can listen; 0 stands for any free port."""
    if not 0 <= port <= PORT_MAX:
        raise ConfigError(f"{port} is no port: choose one from 1 to {PORT_MAX} with --port")


def join_address(name: tuple[Any, ...]) -> str:
    """`ip:port` of a socket's name: IPv6 in brackets, IPv4-mapped IPv6 as plain IPv4."""
    host, port = str(name[0]).removeprefix(IPV4_ON_IPV6), name[1]
    return settings.join_address(host, port)


def is_on_this_machine(peer: Sequence[Any] | None, own: Sequence[Any] | None) -> bool:
    """Whether the peer of a connection is on this machine, by the names of the socket's two ends.

    It is if it comes from loopback, or from the address of ours to which it has connected. A name
    is None once its end is gone.
    """
    peer_ip, own_ip = _ip_of(peer), _ip_of(own)
    return peer_ip is not None and own_ip is not None and (peer_ip == own_ip or peer_ip.is_loopback)


def _ip_of(name: Sequence[Any] | None) -> "IPv4Address | IPv6Address | None":
    """The address in a socket's name, IPv4-mapped IPv6 as IPv4; None where there is none."""
    from ipaddress import ip_address  # here: clients do not need it

    try:
        address = ip_address(str(name[0])) if name else None
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def address_error(error: OSError | UnicodeError) -> str:
    """The operating system's text for an error of an address."""
    return str(getattr(error, "strerror", None) or error)


def routable_address() -> str:
    """The address of this machine that a route to the outside begins at, else that of its name.

    Loopback when there is neither.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.connect(TEST_NET_ADDRESS)
            address = str(udp.getsockname()[0])
    except OSError:  # no route to the outside
        address = _named_address()
    return address if is_specific(address) else LOOPBACK


def is_specific(host: str) -> bool:
    """Whether a host names one interface: not all of them, and not none."""
    return host not in ("", "0.0.0.0", "::", "*")


def _named_address() -> str:
    """The address that the machine's own name resolves to; loopback when it does not."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK
