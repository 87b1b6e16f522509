import asyncio
import socket
from pathlib import Path
from random import Random

import pytest

from roquet.cli.demo.failover import replicated_brokers
from roquet.cli.demo.failover.replicated_brokers import ReplicatedBrokers, free_port

SOURCE = Path(__file__).parents[4] / "src"


def test_a_port_that_somebody_listens_on_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        with socket.socket() as free:
            taken.bind(("127.0.0.1", 0))
            free.bind(("127.0.0.1", 0))
            ports = taken.getsockname()[1], free.getsockname()[1]
        taken.listen()
        monkeypatch.setattr(replicated_brokers, "PORTS", ports)
        assert {free_port(Random(seed)) for seed in range(5)} == {ports[1]}


@pytest.fixture(autouse=True)
def _children_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


async def test_brokers_are_reached_past_their_proxies_by_nobody_else(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        assert [*brokers.nodes] == ["broker-1", "broker-2", "broker-3"]
        assert [*brokers.names_by_port().values()] == [*brokers.nodes]
        for name, node in brokers.nodes.items():
            async with asyncio.timeout(30):
                while node.controller_proxy.connections == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            text = (tmp_path / f"{name}.conf").read_text("utf-8")
            assert f"brokerIP1={node.proxy.address}\n" in text
        one = brokers.nodes["broker-1"]
        brokers.part("broker-1")
        assert (one.stream_proxy.is_cut, one.controller_proxy.is_cut) == (True, True)
        assert not one.proxy.is_cut, "clients reach it"
        brokers.heal("broker-1")
        assert not one.stream_proxy.is_cut
        brokers.process("broker-2").freeze()
        await brokers.kill("broker-3")
        brokers.check()
        assert brokers.nodes["broker-3"].process is None
