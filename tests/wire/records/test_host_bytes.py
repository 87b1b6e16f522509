from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import RecordError
from roquet.wire.records.host_bytes import decode_host, encode_host

ports = st.integers(0, 65535)


def test_an_ipv4_host_is_eight_bytes() -> None:
    assert encode_host("10.0.0.1:10911") == b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
    assert decode_host(b"\x0a\x00\x00\x01\x00\x00\x2a\x9f") == "10.0.0.1:10911"


@pytest.mark.parametrize(
    "text", ["[2001:db8::1]:80", "2001:db8:0:0:0:0:0:1:80", "[2001:db8::1%eth0]:80"]
)
def test_an_ipv6_host_is_twenty_bytes_however_it_is_written(text: str) -> None:
    raw = encode_host(text)
    assert len(raw) == 20
    assert decode_host(raw) == "[2001:db8::1]:80"


@given(st.ip_addresses(), ports)
def test_any_host_is_read_back(ip: IPv4Address | IPv6Address, port: int) -> None:
    raw = ip.packed + port.to_bytes(4, "big")
    assert encode_host(decode_host(raw)) == raw


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "host:1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:-1", "1.2.3:4"]
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(RecordError, match="not an address"):
        encode_host(text)


def test_a_host_of_another_size_is_refused() -> None:
    with pytest.raises(RecordError, match="9 bytes"):
        decode_host(bytes(9))
