"""Faults of a replicated cluster: what is killed, frozen or cut off, and how that is mended."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from harness.links import Flow
from harness.replicated_cluster import BROKERS, ReplicatedCluster

FAULT_SECONDS: Final = (1.0, 9.0)
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

    cluster: ReplicatedCluster
    master: str
    replicas: Sequence[str]


Prepare = Callable[[Scene], Awaitable[Fault]]


async def _nothing() -> None:
    """The fault is mended already."""


def _duration() -> float:
    return random.uniform(*FAULT_SECONDS)


def killed(cluster: ReplicatedCluster, name: str, seconds: float | None = None) -> Fault:
    """A process is killed, and started again later."""

    async def begin() -> None:
        cluster.kill(name)

    return Fault(f"kill {name}", begin, lambda: cluster.start(name), seconds)


def _restarted(cluster: ReplicatedCluster, name: str) -> Fault:
    """A process without which nobody goes on is killed and started again at once."""

    async def begin() -> None:
        cluster.kill(name)
        await cluster.start(name)

    return Fault(f"kill {name}", begin, _nothing)


def frozen(cluster: ReplicatedCluster, name: str, seconds: float | None = None) -> Fault:
    """A process is stopped by SIGSTOP, and goes on later."""

    async def begin() -> None:
        cluster.freeze(name)

    async def end() -> None:
        cluster.thaw(name)

    return Fault(f"freeze {name}", begin, end, seconds)


def cut(
    cluster: ReplicatedCluster,
    one: str,
    others: Sequence[str],
    flow: Flow = Flow.BOTH,
    seconds: float | None = None,
) -> Fault:
    """A process is cut off from others, and connected with them later."""

    async def begin() -> None:
        cluster.links.cut(one, others, flow)

    async def end() -> None:
        cluster.links.heal()

    text = f"cut {one} from {', '.join(others)} ({flow.value})"
    return Fault(text, begin, end, seconds)


async def _kill_master(scene: Scene) -> Fault:
    return killed(scene.cluster, scene.master)


async def _kill_replica(scene: Scene) -> Fault:
    return killed(scene.cluster, random.choice(scene.replicas), _duration())


async def _kill_controller(scene: Scene) -> Fault:
    cluster, leader = scene.cluster, await scene.cluster.leading_controller()
    if len(cluster.controllers) == 1:
        return _restarted(cluster, leader)
    return killed(cluster, leader, _duration())


async def _kill_etcd(scene: Scene) -> Fault:
    return killed(scene.cluster, await scene.cluster.leading_etcd(), _duration())


async def _freeze_master(scene: Scene) -> Fault:
    return frozen(scene.cluster, scene.master, _duration())


async def _freeze_replica(scene: Scene) -> Fault:
    return frozen(scene.cluster, random.choice(scene.replicas), _duration())


async def _freeze_controller(scene: Scene) -> Fault:
    return frozen(scene.cluster, await scene.cluster.leading_controller(), _duration())


async def _freeze_etcd(scene: Scene) -> Fault:
    return frozen(scene.cluster, await scene.cluster.leading_etcd(), _duration())


async def _cut_replicas(scene: Scene) -> Fault:
    return cut(scene.cluster, scene.master, scene.replicas, Flow.BOTH, _duration())


async def _cut_controller(scene: Scene) -> Fault:
    return cut(scene.cluster, scene.master, scene.cluster.controllers, Flow.BOTH, _duration())


async def _cut_one_way(scene: Scene) -> Fault:
    others = random.choice((scene.replicas, scene.cluster.controllers))
    return cut(scene.cluster, scene.master, others, random.choice((Flow.OUT, Flow.IN)), _duration())


async def _cut_all(scene: Scene) -> Fault:
    others = [name for name in BROKERS if name != scene.master]
    everybody = [*others, *scene.cluster.controllers]
    return cut(scene.cluster, scene.master, everybody, Flow.BOTH, _duration())


KINDS: Final[Mapping[str, Prepare]] = {
    "kill master": _kill_master,
    "cut replicas": _cut_replicas,
    "kill etcd": _kill_etcd,
    "cut controller": _cut_controller,
    "cut one way": _cut_one_way,
    "freeze master": _freeze_master,
    "freeze etcd": _freeze_etcd,
    "kill replica": _kill_replica,
    "kill controller": _kill_controller,
    "cut all": _cut_all,
    "freeze replica": _freeze_replica,
    "freeze controller": _freeze_controller,
}
"""Faults by name, in the order of rounds: the first five have one of every sort."""


def kinds(*, has_etcd: bool) -> list[str]:
    """Names of the faults that this machine can cause."""
    return [name for name in KINDS if has_etcd or "etcd" not in name]
