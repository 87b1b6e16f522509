"""Addresses: the text `host:port` and the tuples of sockets."""

from typing import Any

from roquet.model.errors import UsageError

IPV4_ON_IPV6 = "::ffff:"
"""How an IPv6 socket writes a peer's IPv4 address."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets."""
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(f"{address!r} is not an address like 10.0.0.1:10911")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(name: tuple[Any, ...]) -> str:
    """`ip:port` of a socket's name: IPv6 in brackets, IPv4 as such also on an IPv6 socket."""
    host, port = str(name[0]).removeprefix(IPV4_ON_IPV6), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def failure(error: OSError | UnicodeError) -> str:
    """What went wrong with an address, in the system's words."""
    return str(getattr(error, "strerror", None) or error)
