"""A replicated cluster whose processes are only pretended; the failover demo has real ones."""

from pathlib import Path

import pytest

from harness.links import Flow
from harness.processes import Process, ProcessFailed
from harness.replicated_cluster import BROKERS, ReplicatedCluster
from roquet.testing.tcp_proxy import TcpProxy


class Played:
    """Processes that are not there: which of them run, and what is done to them."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.running: set[str] = set()
        self.died: set[str] = set()

    def launch(self, name: str) -> None:
        self.notes.append(f"start {name}")
        self.running.add(name)

    def end(self, how: str, name: str) -> int:
        if name in self.running:
            self.notes.append(f"{how} {name}")
            self.running.discard(name)
        return 0

    def check(self, name: str) -> None:
        if name in self.died:
            raise ProcessFailed(f"{name} has died")


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    calls = {
        "launch": lambda process: played.launch(process.log.stem),
        "wait_ready": lambda process: None,
        "kill": lambda process: played.end("kill", process.log.stem),
        "stop": lambda process: played.end("stop", process.log.stem),
        "check": lambda process: played.check(process.log.stem),
        "thaw": lambda process: played.notes.append(f"thaw {process.log.stem}"),
        "is_running": property(lambda process: process.log.stem in played.running),
    }
    for name, call in calls.items():
        monkeypatch.setattr(Process, name, call)
    return played


def settings_of(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def replaced(proxy: TcpProxy) -> dict[str, str]:
    return {old.decode(): new.decode() for old, new in proxy.replacements.items()}


async def test_brokers_reach_each_other_by_proxies_that_replace_addresses(tmp_path: Path) -> None:
    async with ReplicatedCluster(tmp_path) as cluster:
        assert [*cluster.addresses] == ["broker-1", "broker-2", "broker-3"]
        assert [*cluster.names_by_port.values()] == [*BROKERS]
        for name in BROKERS:
            settings = settings_of(tmp_path / f"{name}.conf")
            (controller,) = cluster.links.between(name, "controller-1")
            assert settings["controllerAddr"] == controller.address
            assert cluster.address(name) == f"{settings['brokerIP1']}:{settings['listenPort']}"
            paths = {
                other: cluster.links.between(name, other) for other in BROKERS if other != name
            }
            for other, (proxy, stream) in paths.items():
                port = settings_of(tmp_path / f"{other}.conf")["haListenPort"]
                assert replaced(proxy) == {f"127.0.0.1:{port}": stream.address}
            assert replaced(controller) == {
                cluster.address("controller-1"): controller.address,
                **{cluster.address(other): proxy.address for other, (proxy, _) in paths.items()},
            }


async def test_without_links_brokers_have_the_controllers_own_address(tmp_path: Path) -> None:
    async with ReplicatedCluster(tmp_path, has_links=False, maxIndexNum=7) as cluster:
        settings = settings_of(tmp_path / "broker-1.conf")
        assert settings["controllerAddr"] == cluster.address("controller-1")
        assert settings["maxIndexNum"] == "7"


async def test_a_broker_that_is_cut_off_is_reached_by_clients_alone(tmp_path: Path) -> None:
    async with ReplicatedCluster(tmp_path) as cluster:
        between = cluster.links.between
        cluster.links.cut("broker-1", ["broker-2", "controller-1"], Flow.BOTH)
        cut = [
            *between("broker-1", "broker-2"),
            *between("broker-2", "broker-1"),
            *between("broker-1", "controller-1"),
        ]
        assert [proxy.is_cut for proxy in cut] == [True] * 5
        others = [*between("broker-1", "broker-3"), *between("broker-2", "controller-1")]
        assert [proxy.is_cut for proxy in others] == [False] * 3
        cluster.links.heal()
        assert [proxy.is_cut for proxy in cut] == [False] * 5


async def test_mended_processes_are_thawed_and_connected_but_for_killed_ones(
    tmp_path: Path, played: Played
) -> None:
    async with ReplicatedCluster(tmp_path) as cluster:
        played.notes.clear()
        cluster.kill("broker-1")
        cluster.links.cut("broker-2", BROKERS, Flow.BOTH)
        cluster.mend()
        assert played.notes[0] == "kill broker-1"
        assert played.notes[-2:] == ["thaw broker-2", "thaw broker-3"]
        assert "thaw broker-1" not in played.notes
        assert not cluster.links.between("broker-2", "broker-1")[1].is_cut


async def test_a_broker_that_died_by_itself_is_a_failure_and_a_killed_one_is_not(
    tmp_path: Path, played: Played
) -> None:
    async with ReplicatedCluster(tmp_path) as cluster:
        cluster.kill("broker-1")
        cluster.check()
        await cluster.start("broker-1")
        assert played.notes[-2:] == ["kill broker-1", "start broker-1"]
        played.died = {"broker-2"}
        with pytest.raises(ProcessFailed, match="broker-2 has died"):
            cluster.check()
        played.notes.clear()
        await cluster.stop()
        assert "thaw broker-1" in played.notes[:5], "frozen ones cannot stop"
        assert sorted(played.notes[-3:]) == ["stop broker-1", "stop broker-2", "stop broker-3"]
    assert played.notes[-1] == "kill namesrv"


async def test_etcd_serves_before_controllers_are_started(tmp_path: Path, played: Played) -> None:
    async with ReplicatedCluster(tmp_path, has_etcd=True) as cluster:
        members = ["etcd-1", "etcd-2", "etcd-3"]
        assert played.notes[:4] == ["start namesrv", *(f"start {name}" for name in members)]
        assert played.notes[4:6] == ["start controller-1", "start controller-2"]
        store = ",".join(map(cluster.address, members))
        assert cluster.processes["controller-2"].command[-1] == f"etcd:{store}"
