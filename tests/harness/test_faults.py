"""Faults of a replicated cluster: each is mended by its opposite, and a few rounds hold many."""

from typing import Any

from harness import faults
from harness.faults import Fault, kinds
from harness.links import Flow

CI_ROUNDS = 5


class RecordingCluster:
    """Records what is done to which process."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.links = self

    def freeze(self, name: str) -> None:
        self.calls.append(f"freeze {name}")

    def thaw(self, name: str) -> None:
        self.calls.append(f"thaw {name}")

    def kill(self, name: str) -> None:
        self.calls.append(f"kill {name}")

    async def start(self, name: str) -> None:
        self.calls.append(f"start {name}")

    def cut(self, one: str, others: list[str], flow: Flow) -> None:
        self.calls.append(f"cut {one} from {' '.join(others)}: {flow.name}")

    def heal(self) -> None:
        self.calls.append("heal")


async def done(cluster: RecordingCluster, fault: Fault) -> list[str]:
    await fault.begin()
    await fault.end()
    return cluster.calls


async def test_what_is_killed_is_started_again() -> None:
    cluster: Any = RecordingCluster()
    assert await done(cluster, faults.killed(cluster, "a")) == ["kill a", "start a"]


async def test_what_is_frozen_goes_on() -> None:
    cluster: Any = RecordingCluster()
    assert await done(cluster, faults.frozen(cluster, "a", 2.0)) == ["freeze a", "thaw a"]
    assert faults.frozen(cluster, "a", 2.0).seconds == 2.0


async def test_what_is_cut_is_healed() -> None:
    cluster: Any = RecordingCluster()
    fault = faults.cut(cluster, "a", ["b", "c"])
    assert await done(cluster, fault) == ["cut a from b c: BOTH", "heal"]
    assert fault.text == "cut a from b, c (both ways)"


def test_a_few_rounds_have_kills_and_cuts_of_each_sort() -> None:
    first = kinds(has_etcd=True)[:CI_ROUNDS]
    wanted = {"kill master", "cut replicas", "cut controller", "cut one way", "kill etcd"}
    assert set(first) == wanted


def test_without_etcd_its_rounds_are_others() -> None:
    names = kinds(has_etcd=False)
    assert not [name for name in names if "etcd" in name]
    assert set(names[:CI_ROUNDS]) == {
        "kill master", "cut replicas", "cut controller", "cut one way", "freeze master",
    }  # fmt: skip
