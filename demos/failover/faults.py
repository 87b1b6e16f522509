"""Faults of a master, each with the words for it and for what mends it."""

from collections.abc import Callable
from typing import Final

import msgspec

from harness import faults
from harness.faults import Fault
from harness.replicated_cluster import BROKERS, ReplicatedCluster


class FaultAction(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that is caused and mended at will."""

    name: str
    """Mark in the pictures."""
    text: str
    """End of the sentence that begins with the broker's name."""
    mended_name: str
    mended_text: str
    fault: Callable[[ReplicatedCluster, str], Fault]
    """The fault of a broker of this name, ready to be caused."""


def _parted(cluster: ReplicatedCluster, name: str) -> Fault:
    """A broker is cut off from its replicas and from the controller, but not from clients."""
    others = [broker for broker in BROKERS if broker != name]
    return faults.cut(cluster, name, [*others, *cluster.controllers])


KILL: Final = FaultAction(
    name="killed",
    text="is killed (SIGKILL)",
    mended_name="back",
    mended_text="is started again",
    fault=faults.killed,
)

FREEZE: Final = FaultAction(
    name="frozen",
    text="is frozen (SIGSTOP)",
    mended_name="thawed",
    mended_text="goes on (SIGCONT), and is told that it leads no more",
    fault=faults.frozen,
)

PART: Final = FaultAction(
    name="parted",
    text="is cut off from replicas and controller, not from clients",
    mended_name="healed",
    mended_text="reaches replicas and controller again",
    fault=_parted,
)

ALL_FAULTS: Final = (KILL, FREEZE, PART)
