from pathlib import Path

import pytest

from roquet.cli.demo.failover.replicated_brokers import ReplicatedBrokers, free_port

SOURCE = Path(__file__).parents[4] / "src"


def test_a_free_port_has_as_many_digits_as_those_that_proxies_replace() -> None:
    assert len(str(free_port())) == 5


@pytest.fixture(autouse=True)
def _children_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


async def test_brokers_are_reached_past_their_proxies_by_nobody_else(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        assert [*brokers.nodes] == ["broker-1", "broker-2", "broker-3"]
        assert [*brokers.names_by_port().values()] == [*brokers.nodes]
        for name, node in brokers.nodes.items():
            assert node.controller_proxy.connections > 0, "its controller is behind a proxy"
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
