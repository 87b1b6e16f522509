"""PROXY protocol: the header by which a load balancer names the client whose bytes follow.

    version 1   PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911 CR LF         at most 107 bytes

    version 2   ┌────────────────┬──────────────────┬────────────┬───────────┬──────────────────┐
                │ signature (12) │ version, command │ family (1) │ size (2)  │ addresses, TLVs  │
                └────────────────┴──────────────────┴────────────┴───────────┴──────────────────┘

Source: haproxy.org, proxy-protocol.txt, sections 2.1 and 2.2.
"""

from ipaddress import ip_address
from struct import Struct
from typing import Final

from roquet.model.errors import RemoteProtocolError
from roquet.model.settings import join_address

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""First bytes of version 2."""

PREFIX: Final = b"PROXY "
"""First bytes of version 1."""

STARTS: Final = (PREFIX[:3], SIGNATURE[:1])
"""How headers begin: TLS, HTTP/2 (`PRI`) and frames of an accepted size begin otherwise."""

START_SIZE: Final = max(map(len, STARTS))

LINE_SIZE_MAX: Final = 107
"""Longest header of version 1, with its line end."""

SIZE_MAX: Final = 4 * 1024
"""Longest header of version 2: addresses have 36 bytes, the rest are TLVs, which are skipped."""

_FIXED: Final = Struct(">12sBBH")
_ADDRESSES: Final = {0x11: Struct(">4s4sHH"), 0x21: Struct(">16s16sHH")}
"""Addresses by family: TCP over IPv4, and TCP over IPv6."""

_LOCAL: Final = 0x20
_PROXIED: Final = 0x21


def begins_header(begun: bytes) -> bool | None:
    """Whether a header begins with these bytes; None while they are too few to tell."""
    if begun.startswith(STARTS):
        return True
    return None if any(start.startswith(begun) for start in STARTS) else False


def header_size(begun: bytes) -> int | None:
    """Size of the header whose first bytes are given; None until they tell it.

    Raises RemoteProtocolError for bytes that begin no header, and for a header that is too long.
    """
    if begun[:1] == PREFIX[:1]:
        return _line_size(begun)
    if begun[: len(SIGNATURE)] != SIGNATURE[: len(begun)]:
        raise RemoteProtocolError(f"no PROXY header begins with {begun[:16]!r}")
    if len(begun) < _FIXED.size:
        return None
    size: int = _FIXED.size + _FIXED.unpack_from(begun)[3]
    if size > SIZE_MAX:
        raise RemoteProtocolError(f"a PROXY header of {size} bytes; the most is {SIZE_MAX}")
    return size


def source_address(header: bytes) -> str | None:
    """The client's `ip:port` in a whole header; None if the balancer connects on its own behalf.

    It is None for other networks than TCP, too. Raises RemoteProtocolError.
    """
    return _of_line(header) if header.startswith(PREFIX) else _of_binary(header)


def _line_size(begun: bytes) -> int | None:
    if begun[: len(PREFIX)] != PREFIX[: len(begun)]:
        raise RemoteProtocolError(f"no PROXY header begins with {begun[:16]!r}")
    end = begun.find(b"\n", 0, LINE_SIZE_MAX)
    if end >= 0:
        return end + 1
    if len(begun) >= LINE_SIZE_MAX:
        raise RemoteProtocolError(f"a PROXY header without a line end in {LINE_SIZE_MAX} bytes")
    return None


def _of_line(header: bytes) -> str | None:
    words = header.decode("latin-1").removesuffix("\r\n").split(" ")
    if words[1] == "UNKNOWN":
        return None
    if len(words) == 6 and words[1] in ("TCP4", "TCP6") and words[4].isdecimal():
        try:
            ip, port = ip_address(words[2]), int(words[4])
        except ValueError:
            pass
        else:
            if ip.version == int(words[1][3]) and port <= 0xFFFF:
                return join_address(str(ip), port)
    raise RemoteProtocolError(f"a PROXY header that cannot be read: {header!r}")


def _of_binary(header: bytes) -> str | None:
    _, command, family, size = _FIXED.unpack_from(header)
    if command == _LOCAL:
        return None
    if command != _PROXIED:
        raise RemoteProtocolError(f"a PROXY header of unknown command {command:#04x}")
    layout = _ADDRESSES.get(family)
    if layout is None:
        return None
    if size < layout.size:
        raise RemoteProtocolError(f"a PROXY header with {size} bytes of addresses")
    source, _, port, _ = layout.unpack_from(header, _FIXED.size)
    return join_address(str(ip_address(source)), port)
