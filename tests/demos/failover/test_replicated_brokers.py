"""The brokers with processes that are only pretended; `test_orchestration` has real ones."""

import socket
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from demos.failover import replicated_brokers
from demos.failover.replicated_brokers import ReplicatedBrokers, free_port
from roquet.cli.process.child_processes import ChildProcessFailed
from roquet.testing.tcp_proxy import TcpProxy

CONTROLLER = "127.0.0.1:40000"


class PretendedProcess:
    """A child process that does nothing but note what is done to it."""

    started: list[str]
    notes: list[str]

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_running = True

    @classmethod
    async def start(
        cls, name: str, *arguments: str, logs: Path, environ: Mapping[str, str] = {}
    ) -> "PretendedProcess":
        cls.started.append(name)
        return cls(name)

    async def wait_ready(self, words: str) -> str:
        return CONTROLLER if "controller" in words else "127.0.0.1:9876"

    async def kill(self) -> None:
        self.notes.append(f"kill {self.name}")

    def thaw(self) -> None:
        self.notes.append(f"thaw {self.name}")

    async def stop(self) -> None:
        self.notes.append(f"stop {self.name}")

    def failure(self) -> ChildProcessFailed:
        return ChildProcessFailed(f"{self.name} has died")


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> type[PretendedProcess]:
    monkeypatch.setattr(PretendedProcess, "started", [], raising=False)
    monkeypatch.setattr(PretendedProcess, "notes", [], raising=False)
    monkeypatch.setattr(replicated_brokers, "ChildProcess", PretendedProcess)
    return PretendedProcess


def settings_of(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def replaced(proxy: TcpProxy) -> dict[str, str]:
    return {old.decode(): new.decode() for old, new in proxy.replacements.items()}


def test_no_port_is_chosen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = range(20_000, 20_004)
    monkeypatch.setattr(replicated_brokers, "PORTS", ports)
    assert {free_port(Random(seed), ports[:3]) for seed in range(9)} == {ports[3]}


def test_a_port_that_somebody_listens_on_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        with socket.socket() as free:
            taken.bind(("127.0.0.1", 0))
            free.bind(("127.0.0.1", 0))
            ports = taken.getsockname()[1], free.getsockname()[1]
        taken.listen()
        monkeypatch.setattr(replicated_brokers, "PORTS", ports)
        assert {free_port(Random(seed)) for seed in range(5)} == {ports[1]}


async def test_brokers_are_reached_by_proxies_that_replace_their_addresses(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        assert [*brokers.nodes] == ["broker-1", "broker-2", "broker-3"]
        assert [*brokers.names_by_port().values()] == [*brokers.nodes]
        for name, node in brokers.nodes.items():
            settings = settings_of(tmp_path / f"{name}.conf")
            assert settings["brokerIP1"] == node.proxy.address
            assert settings["controllerAddr"] == node.controller_proxy.address
            stream = f"127.0.0.1:{settings['haListenPort']}"
            assert replaced(node.proxy) == {stream: node.stream_proxy.address}
            assert replaced(node.controller_proxy) == {CONTROLLER: node.controller_proxy.address}


async def test_a_parted_broker_is_reached_by_clients_alone(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        one, two = brokers.nodes["broker-1"], brokers.nodes["broker-2"]
        brokers.part("broker-1")
        assert (one.stream_proxy.is_cut, one.controller_proxy.is_cut) == (True, True)
        assert (one.proxy.is_cut, two.stream_proxy.is_cut) == (False, False)
        brokers.heal("broker-1")
        assert (one.stream_proxy.is_cut, one.controller_proxy.is_cut) == (False, False)


async def test_mended_brokers_are_thawed_and_connected_but_for_killed_ones(
    tmp_path: Path, processes: type[PretendedProcess]
) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        await brokers.kill("broker-1")
        brokers.part("broker-2")
        brokers.mend()
        assert processes.notes == ["kill broker-1", "thaw broker-2", "thaw broker-3"]
        assert not brokers.nodes["broker-2"].stream_proxy.is_cut


async def test_a_broker_that_died_by_itself_is_a_failure_and_a_killed_one_is_not(
    tmp_path: Path, processes: type[PretendedProcess]
) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        await brokers.kill("broker-1")
        brokers.check()
        await brokers.start("broker-1")
        two: Any = brokers.process("broker-2")
        two.is_running = False
        with pytest.raises(ChildProcessFailed, match="broker-2 has died"):
            brokers.check()
        two.is_running = True
    assert processes.started[-1] == "broker-1"
    assert processes.notes[:2] == ["kill broker-1", "thaw broker-1"], "frozen ones cannot stop"
    assert processes.notes[-1] == "stop namesrv"


def test_ports_have_as_many_digits_as_those_that_replace_them() -> None:
    assert {len(str(port)) for port in replicated_brokers.PORTS} == {5}
