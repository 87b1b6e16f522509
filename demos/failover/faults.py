"""Faults of a master, each with what mends it."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from demos.failover.replicated_brokers import ReplicatedBrokers

ActOnBroker = Callable[[ReplicatedBrokers, str], Awaitable[None]]


class FaultAction(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that is caused and mended at will."""

    name: str
    """Mark in the pictures."""
    text: str
    """End of the sentence that begins with the broker's name."""
    mended_name: str
    mended_text: str
    cause: ActOnBroker
    mend: ActOnBroker


async def _kill(brokers: ReplicatedBrokers, name: str) -> None:
    await brokers.kill(name)


async def _start(brokers: ReplicatedBrokers, name: str) -> None:
    await brokers.start(name)


async def _freeze(brokers: ReplicatedBrokers, name: str) -> None:
    brokers.process(name).freeze()


async def _thaw(brokers: ReplicatedBrokers, name: str) -> None:
    brokers.process(name).thaw()


async def _part(brokers: ReplicatedBrokers, name: str) -> None:
    brokers.part(name)


async def _heal(brokers: ReplicatedBrokers, name: str) -> None:
    brokers.heal(name)


KILL: Final = FaultAction(
    name="killed",
    text="is killed (SIGKILL)",
    mended_name="back",
    mended_text="is started again",
    cause=_kill,
    mend=_start,
)

FREEZE: Final = FaultAction(
    name="frozen",
    text="is frozen (SIGSTOP)",
    mended_name="thawed",
    mended_text="goes on (SIGCONT), and is told that it leads no more",
    cause=_freeze,
    mend=_thaw,
)

PART: Final = FaultAction(
    name="parted",
    text="is cut off from replicas and controller, not from clients",
    mended_name="healed",
    mended_text="reaches replicas and controller again",
    cause=_part,
    mend=_heal,
)

ALL_FAULTS: Final = (KILL, FREEZE, PART)
