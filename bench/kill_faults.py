"""Faults of a replicated cluster: what is killed, frozen or cut off, and how that is mended.

A library of `kill_master.py`.
"""

import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from kill_cluster import BROKERS, Flow, KillCluster

FAULT_SECONDS = (1.0, 9.0)
"""How long a process is frozen or away, or a connection cut: less and more than a lease, and than
the silence after which a broker counts as lost."""


class Fault(NamedTuple):
    """A fault that is ready to be caused."""

    text: str
    """Line for the report: the fault and its victim."""
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]
    seconds: float | None = None
    """How long it lasts, whether or not senders go on; None: until they do."""


class Scene(NamedTuple):
    """A healthy cluster before a fault."""

    cluster: KillCluster
    master: str
    replicas: Sequence[str]


Prepare = Callable[[Scene], Awaitable[Fault]]


async def _nothing() -> None:
    """The fault is mended already."""


def _duration() -> float:
    return random.uniform(*FAULT_SECONDS)


def _killed(cluster: KillCluster, name: str, seconds: float | None) -> Fault:
    """A process is killed, and started again later."""

    async def begin() -> None:
        cluster.kill(name)

    return Fault(f"kill {name}", begin, lambda: cluster.start(name), seconds)


def _restarted(cluster: KillCluster, name: str) -> Fault:
    """A process without which nobody goes on is killed and started again at once."""

    async def begin() -> None:
        cluster.kill(name)
        await cluster.start(name)

    return Fault(f"kill {name}", begin, _nothing)


def _frozen(cluster: KillCluster, name: str) -> Fault:
    async def begin() -> None:
        cluster.signal(name, signal.SIGSTOP)

    async def end() -> None:
        cluster.signal(name, signal.SIGCONT)

    return Fault(f"freeze {name}", begin, end, _duration())


def _cut(cluster: KillCluster, one: str, others: Sequence[str], flow: Flow) -> Fault:
    async def begin() -> None:
        cluster.links.cut(one, others, flow)

    async def end() -> None:
        cluster.links.heal()

    text = f"cut {one} from {', '.join(others)} ({flow.value})"
    return Fault(text, begin, end, _duration())


async def kill_master(scene: Scene) -> Fault:
    return _killed(scene.cluster, scene.master, None)


async def kill_replica(scene: Scene) -> Fault:
    return _killed(scene.cluster, random.choice(scene.replicas), _duration())


async def kill_controller(scene: Scene) -> Fault:
    cluster, leader = scene.cluster, await scene.cluster.leading_controller()
    if len(cluster.controllers) == 1:
        return _restarted(cluster, leader)
    return _killed(cluster, leader, _duration())


async def kill_etcd(scene: Scene) -> Fault:
    return _killed(scene.cluster, await scene.cluster.leading_etcd(), _duration())


async def freeze_master(scene: Scene) -> Fault:
    return _frozen(scene.cluster, scene.master)


async def freeze_replica(scene: Scene) -> Fault:
    return _frozen(scene.cluster, random.choice(scene.replicas))


async def freeze_controller(scene: Scene) -> Fault:
    return _frozen(scene.cluster, await scene.cluster.leading_controller())


async def freeze_etcd(scene: Scene) -> Fault:
    return _frozen(scene.cluster, await scene.cluster.leading_etcd())


async def cut_replicas(scene: Scene) -> Fault:
    return _cut(scene.cluster, scene.master, scene.replicas, Flow.BOTH)


async def cut_controller(scene: Scene) -> Fault:
    return _cut(scene.cluster, scene.master, scene.cluster.controllers, Flow.BOTH)


async def cut_one_way(scene: Scene) -> Fault:
    others = random.choice((scene.replicas, scene.cluster.controllers))
    return _cut(scene.cluster, scene.master, others, random.choice((Flow.OUT, Flow.IN)))


async def cut_all(scene: Scene) -> Fault:
    others = [name for name in BROKERS if name != scene.master]
    everybody = [*others, *scene.cluster.controllers]
    return _cut(scene.cluster, scene.master, everybody, Flow.BOTH)


KINDS: Mapping[str, Prepare] = {
    "kill master": kill_master,
    "cut replicas": cut_replicas,
    "kill etcd": kill_etcd,
    "cut controller": cut_controller,
    "cut one way": cut_one_way,
    "freeze master": freeze_master,
    "freeze etcd": freeze_etcd,
    "kill replica": kill_replica,
    "kill controller": kill_controller,
    "cut all": cut_all,
    "freeze replica": freeze_replica,
    "freeze controller": freeze_controller,
}
"""Faults by name, in the order of rounds: the first five have one of every sort."""


def kinds(*, has_etcd: bool) -> list[str]:
    """Names of the faults that this machine can cause."""
    return [name for name in KINDS if has_etcd or "etcd" not in name]
