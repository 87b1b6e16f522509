"""Headers of the PROXY protocol, by the bytes of its specification."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import RemoteProtocolError
from roquet.wire.proxy_protocol import SIGNATURE, begins_header, header_size, source_address

LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911\r\n"
V4 = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + struct.pack(">HH", 56324, 10911)


def binary(command: int = 0x21, family: int = 0x11, rest: bytes = V4) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


@pytest.mark.parametrize(
    ("header", "address"),
    [
        (LINE, "192.0.2.7:56324"),
        (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (binary(), "192.0.2.7:56324"),
        (binary(rest=V4 + b"\x04\x00\x01x"), "192.0.2.7:56324"),
        (binary(family=0x21, rest=bytes(15) + b"\1" + bytes(16) + b"\0\7\0\1"), "[::1]:7"),
        (binary(command=0x20, family=0, rest=b""), None),
        (binary(family=0x31, rest=bytes(216)), None),
    ],
)
def test_a_header_names_the_client(header: bytes, address: str | None) -> None:
    assert header_size(header) == len(header)
    assert source_address(header) == address


@pytest.mark.parametrize("header", [LINE, binary(), binary(rest=V4 + bytes(500))])
def test_the_size_is_known_before_the_bytes_that_follow_are_touched(header: bytes) -> None:
    sizes = {header_size(header[:length]) for length in range(1, len(header))}
    assert sizes <= {None, len(header)}
    assert header_size(header + b"\x16\x03\x01 and what follows\r\n") == len(header)


@pytest.mark.parametrize(
    ("begun", "text"),
    [
        (b"PRIXY", "no PROXY header begins with"),
        (b"\r\n\r\nGET", "no PROXY header begins with"),
        (b"PROXY " + b"1" * 101, "without a line end in 107 bytes"),
        (SIGNATURE + b"\x21\x11\xff\xff", "a PROXY header of 65551 bytes"),
    ],
)
def test_bytes_that_begin_no_header_are_refused(begun: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        header_size(begun)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 56324\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.300 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
        binary(command=0x31),
        binary(rest=V4[:-1]),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="a PROXY header"):
        source_address(header)


@given(st.binary(min_size=1, max_size=600))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    for begun in (data, b"PROXY " + data, SIGNATURE + data):
        try:
            size = header_size(begun)
            if size is not None and size <= len(begun):
                source_address(begun[:size])
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize(
    ("begun", "is_one"),
    [
        (b"P", None),
        (b"PR", None),
        (b"PRO", True),
        (b"PRI * HTTP/2.0", False),
        (b"\r\n", True),
        (b"\x16", False),
        (b"\0\0\0\x10", False),
    ],
)
def test_the_first_bytes_tell_whether_a_header_begins(begun: bytes, is_one: bool | None) -> None:
    assert begins_header(begun) is is_one
