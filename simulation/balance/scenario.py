"""Scenario of the balance workload: consumers that come and go while ordered keys are sent."""

from random import Random
from typing import Final

from simulation.scenario import ClusterScenario, Fault, FaultEvent, check_seed

ACTION_MS: Final = 90_000
"""How long messages are sent and faults happen; what follows is left to settle."""

MESSAGES: Final = (60, 160)
"""Least and most messages sent within that time."""

MILD: Final = (Fault.JOIN, Fault.LEAVE)
HARSH: Final = (
    *MILD, Fault.KILL, Fault.SILENCE, Fault.PARTITION, Fault.SLOW, Fault.CRASH, Fault.HEAL,
)  # fmt: skip


class BalanceScenario(ClusterScenario, frozen=True, kw_only=True):
    """A cluster, its faults, and the messages of some order keys."""

    ordered: bool
    """Whether the group handles each queue in order."""
    calm: bool
    """Whether consumers only join and leave in good order: then nothing may be handled twice."""
    messages: int
    order_keys: int
    failing: float
    """Share of messages whose first two attempts fail."""


def draw_scenario(seed: int) -> BalanceScenario:
    """Draw the scenario of a seed. A third of them is calm, half of them is ordered."""
    check_seed(seed)
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
        events=_draw_events(rng, MILD if calm else HARSH),
    )


def _draw_events(rng: Random, faults: tuple[Fault, ...]) -> tuple[FaultEvent, ...]:
    times = sorted(rng.randrange(3_000, ACTION_MS) for _ in range(rng.randint(2, 8)))
    return tuple(_draw_event(rng, at_ms, faults) for at_ms in times)


def _draw_event(rng: Random, at_ms: int, faults: tuple[Fault, ...]) -> FaultEvent:
    fault, consumer, broker = rng.choice(faults), rng.randrange(1_000), rng.randrange(1_000)
    # The number that chooses a consumer is free where a broker crashes: up to 20 s down.
    return FaultEvent(
        at_ms=at_ms, fault=fault, consumer=consumer, broker=broker, down_ms=consumer * 20
    )


def message_name(order_key: str, number: int) -> str:
    """The name of a message, which is its body: the order key and its place among its messages."""
    return f"{order_key}:{number}"


def parse_message_name(name: str) -> tuple[str, int]:
    """The order key and the place of a message."""
    order_key, _, number = name.partition(":")
    return order_key, int(number)
