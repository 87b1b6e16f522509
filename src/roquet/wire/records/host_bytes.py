"""Host of a record: raw ip (4 or 16 bytes) and port (4 bytes)."""

from typing import TYPE_CHECKING, Final

from roquet.model.errors import RecordError

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

HOST_SIZES: Final = (8, 20)
"""Bytes of a raw host with an IPv4 and with an IPv6 address."""


def encode_host(text: str) -> bytes:
    """Encode `ip:port`; an IPv6 address may be in brackets."""
    ip, _, port = text.rpartition(":")
    try:
        # An interface name after % is useless to another machine.
        address = _ip_address(ip.strip("[]").partition("%")[0])
        return address.packed + int(port).to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise RecordError(f"{text!r} is not an address like 10.0.0.1:10911") from error


def decode_host(host: bytes) -> str:
    """Decode a raw host into `ip:port`, an IPv6 address in brackets."""
    if len(host) == HOST_SIZES[0]:
        a, b, c, d = host[:4]
        return f"{a}.{b}.{c}.{d}:{int.from_bytes(host[4:], 'big')}"
    if len(host) == HOST_SIZES[1]:
        return f"[{_ip_address(host[:16])}]:{int.from_bytes(host[16:], 'big')}"
    raise RecordError(f"a host of {len(host)} bytes is neither IPv4 nor IPv6")


def _ip_address(ip: str | bytes) -> "IPv4Address | IPv6Address":
    from ipaddress import ip_address  # here: an import of the client does not pay for it

    return ip_address(ip)
