"""Ports that nothing listens on."""

import itertools
import socket

import pytest

from harness import ports
from harness.ports import free_port, free_ports


def test_no_port_is_near_another() -> None:
    chosen = sorted(free_ports(40))
    assert len(chosen) == 40
    assert min(later - earlier for earlier, later in itertools.pairwise(chosen)) > 2


def test_a_port_that_somebody_listens_on_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", near))
        taken.listen()
        monkeypatch.setattr(ports, "PORTS", (near, near + 2, far))
        assert {free_port() for _ in range(9)} == {far}, "nor is one beside it"


def test_ports_at_offsets_are_free_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", one + 10))
        monkeypatch.setattr(ports, "PORTS", (one, other))
        assert {free_port(0, 10) for _ in range(9)} == {other}


def test_ports_have_as_many_digits_as_those_that_replace_them() -> None:
    assert {len(str(port)) for port in ports.PORTS} == {5}
