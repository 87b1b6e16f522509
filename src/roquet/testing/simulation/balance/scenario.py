"""Scenario: what a seed lets happen to a cluster, and when.

A scenario is drawn whole before anything runs, so that it can be printed, and so that a bug in the
client cannot change what happens to it.
"""

from enum import Enum
from random import Random
from typing import Final

import msgspec

from roquet.model.errors import UsageError

ACTION_MS: Final = 90_000
"""How long things happen; what follows is left to settle."""

MESSAGES: Final = (60, 160)
"""Sent within that time."""


class BalanceFault(Enum):
    """What may happen to a cluster."""

    JOIN = "joins"
    """A member comes."""
    LEAVE = "leaves"
    """A member goes in good order."""
    KILL = "is killed"
    """A member's process dies: its connections end, nothing else does."""
    SILENCE = "falls silent"
    """A member's machine is gone: nobody is told."""
    PART = "is parted from"
    """A member and a broker do not reach each other."""
    SLOW = "is slow"
    """A broker is far away for a time."""
    CRASH = "crashes"
    """A broker's process dies; it is started again within 20 seconds."""
    HEAL = "all heal"
    """Everybody reaches everybody."""


MILD: Final = (BalanceFault.JOIN, BalanceFault.LEAVE)
HARSH: Final = (
    *MILD,
    BalanceFault.KILL,
    BalanceFault.SILENCE,
    BalanceFault.PART,
    BalanceFault.SLOW,
    BalanceFault.CRASH,
    BalanceFault.HEAL,
)


class BalanceFaultEvent(msgspec.Struct, frozen=True):
    """One thing that happens; numbers choose whom it happens to among those who are there."""

    at_ms: int
    fault: BalanceFault
    who: int
    other: int

    def __str__(self) -> str:
        return f"{self.at_ms} ms: {self.who} {self.fault.value} {self.other}"


class BalanceScenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is decided beforehand."""

    seed: int
    ordered: bool
    """Whether the group handles each queue in order."""
    calm: bool
    """Whether members only come and go in good order: then nothing may be handled twice."""
    brokers: int
    queues: int
    """Of the topic on each broker."""
    members: int
    """At first."""
    messages: int
    order_keys: int
    failing: float
    """Share of messages whose first handling fails."""
    handling_ms: tuple[int, int]
    network_ms: tuple[int, int]
    events: tuple[BalanceFaultEvent, ...]


def draw_scenario(seed: int) -> BalanceScenario:
    """The scenario of a seed. A third of them is calm, half of them is ordered."""
    if seed < 0:
        raise UsageError(f"a seed is a number from 0 on, not {seed}")
    rng = Random(seed)
    calm = seed % 3 == 0
    return BalanceScenario(
        seed=seed,
        ordered=seed % 2 == 1,
        calm=calm,
        brokers=rng.randint(1, 2),
        queues=rng.randint(1, 4),
        members=rng.randint(1, 3),
        messages=rng.randint(*MESSAGES),
        order_keys=rng.randint(1, 6),
        failing=rng.choice((0.0, 0.05, 0.2)),
        handling_ms=rng.choice(((0, 5), (1, 50), (20, 400))),
        network_ms=rng.choice(((0, 0), (0, 3), (1, 40))),
        events=_events(rng, MILD if calm else HARSH),
    )


def _events(rng: Random, faults: tuple[BalanceFault, ...]) -> tuple[BalanceFaultEvent, ...]:
    times = sorted(rng.randrange(3_000, ACTION_MS) for _ in range(rng.randint(2, 8)))
    return tuple(
        BalanceFaultEvent(at_ms, rng.choice(faults), rng.randrange(1_000), rng.randrange(1_000))
        for at_ms in times
    )
