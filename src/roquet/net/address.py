"""Addresses: the text `host:port`, the tuples of sockets, and this machine's own."""

import socket
from typing import Any, Final

from roquet.model import settings
from roquet.model.errors import UsageError

IPV4_ON_IPV6: Final = "::ffff:"
"""How an IPv6 socket writes a peer's IPv4 address."""

LOOPBACK: Final = "127.0.0.1"

TEST_NET_ADDRESS: Final = ("192.0.2.1", 9)
"""An address of the documentation's net: asking the way there shows our own, and sends nothing."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets."""
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(f"{address!r} is not an address like 10.0.0.1:10911")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(name: tuple[Any, ...]) -> str:
    """`ip:port` of a socket's name: IPv6 in brackets, IPv4 as such also on an IPv6 socket."""
    host, port = str(name[0]).removeprefix(IPV4_ON_IPV6), name[1]
    return settings.join_address(host, port)


def address_error(error: OSError | UnicodeError) -> str:
    """What went wrong with an address, in the system's words."""
    return str(getattr(error, "strerror", None) or error)


def routable_address() -> str:
    """An address of this machine that others can reach, as far as it can tell."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect(TEST_NET_ADDRESS)
            found = str(asking.getsockname()[0])
    except OSError:  # no way out of here
        found = _named_address()
    return found if is_specific(found) else LOOPBACK


def is_specific(host: str) -> bool:
    """Whether this names one interface: neither all of them nor nothing."""
    return host not in ("", "0.0.0.0", "::", "*")


def _named_address() -> str:
    """What the machine's own name stands for."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK
