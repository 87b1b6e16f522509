"""Addresses as people and sockets write them."""

import socket

import pytest

from roquet.model.errors import ConfigError, UsageError
from roquet.net.address import (
    check_port,
    host_of,
    is_on_this_machine,
    join_address,
    routable_address,
    split_address,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("10.0.0.1:10911", ("10.0.0.1", 10911)),
        ("broker-a.example:1", ("broker-a.example", 1)),
        ("[fe80::1]:9876", ("fe80::1", 9876)),
        (" localhost:9876 ", ("localhost", 9876)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize(
    ("address", "host"), [("10.0.0.1:10911", "10.0.0.1"), ("[fe80::1]:9876", "fe80::1"), ("?", "")]
)
def test_the_host_of_an_address_has_no_brackets(address: str, host: str) -> None:
    assert host_of(address) == host


@pytest.mark.parametrize("text", ["", "host", ":9876", "host:", "host:x", "host:-1", "host:65536"])
def test_an_invalid_address_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address like"):
        split_address(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("10.0.0.1", 4711), "10.0.0.1:4711"),
        (("::1", 4711, 0, 0), "[::1]:4711"),
        (("::ffff:10.0.0.1", 4711, 0, 0), "10.0.0.1:4711"),
    ],
)
def test_a_sockets_name_is_written_as_java_writes_it(name: tuple[str, int], text: str) -> None:
    assert join_address(name) == text


@pytest.mark.parametrize(
    ("peer", "own", "is_local"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 2), True),
        (("127.0.0.9", 1), ("10.0.0.5", 2), True),
        (("::1", 1, 0, 0), ("::1", 2, 0, 0), True),
        (("::ffff:127.0.0.1", 1, 0, 0), ("::ffff:10.0.0.5", 2, 0, 0), True),
        (("::ffff:7f00:1", 1, 0, 0), ("::ffff:127.0.0.1", 2, 0, 0), True),
        (("::ffff:10.0.0.5", 1, 0, 0), ("10.0.0.5", 2), True),
        (("10.0.0.5", 1), ("::ffff:10.0.0.5", 2, 0, 0), True),
        (("fd00::5", 1, 0, 0), ("fd00::5", 2, 0, 0), True),
        (("10.0.0.7", 1), ("10.0.0.5", 2), False),
        (("::ffff:10.0.0.7", 1, 0, 0), ("::ffff:10.0.0.5", 2, 0, 0), False),
        (("10.0.0.7", 1), ("127.0.0.1", 2), False),
        (("::7f00:1", 1, 0, 0), ("fd00::5", 2, 0, 0), False),
        (("unknown", 0), ("unknown", 0), False),
        (("", 0), ("", 0), False),
        (None, ("10.0.0.5", 2), False),
        (("127.0.0.1", 1), None, False),
        (None, None, False),
    ],
)
def test_a_peer_is_on_this_machine_by_loopback_or_by_the_address_that_it_called(
    peer: tuple[object, ...] | None, own: tuple[object, ...] | None, is_local: bool
) -> None:
    assert is_on_this_machine(peer, own) is is_local


def test_some_address_is_always_found() -> None:
    assert socket.inet_aton(routable_address())


def test_without_a_network_the_address_is_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "gethostbyname", no_network)
    assert routable_address() == "127.0.0.1"


def test_a_number_that_is_no_port_is_named() -> None:
    check_port(0)
    check_port(65_535)
    for number in (-1, 65_536, 70_000):
        with pytest.raises(ConfigError, match=f"{number} is no port: choose one .* with --port"):
            check_port(number)
