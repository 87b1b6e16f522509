"""Scenario of the timed workload: messages sent over a day, and what is to become of each."""

from enum import Enum
from random import Random
from typing import Final

import msgspec

from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from simulation.scenario import ClusterScenario, Fault, FaultEvent, check_seed

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

BURST_MS: Final = 20_000
"""Messages are sent in bursts of this length; the time between them may be skipped."""

RETRIES: Final = 16
"""Tries after the first one, a group's default."""

POISON: Final = RETRIES + 1
"""Failures of a message that no consumer can handle: it becomes a dead letter."""

FAR: Final = 0.05
"""Share of timers that may wait for nearly a day; the others wait two hours at most."""

FAULTS: Final = (
    Fault.CRASH, Fault.KILL, Fault.SILENCE, Fault.LEAVE, Fault.JOIN, Fault.PRODUCER_CRASH,
)  # fmt: skip


class SendKind(Enum):
    """How a message is sent."""

    PLAIN = "at once"
    LEVEL = "at a delay level"
    TIMER = "at a time"
    TRANSACTION = "in a transaction"


class TransactionCourse(Enum):
    """The course of a transaction: whether and when its producer commits."""

    COMMIT = "commits"
    ROLL_BACK = "rolls back"
    COMMIT_WHEN_CHECKED = "commits when it is asked"
    ROLL_BACK_WHEN_CHECKED = "rolls back when it is asked"
    NEVER_DECIDE = "never says"
    CRASH_BEFORE_COMMIT = "dies before it commits"
    CRASH_BEFORE_DONE = "dies before its work is done"


class SendOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One message, and what is to happen to it."""

    name: str
    """Unique in a scenario; the message's body."""
    at_ms: int
    kind: SendKind
    failures: int
    """Attempts at handling it that fail."""
    tag: str
    weight: int
    """A property, for filters by expression."""
    level: int = 0
    wait_ms: int = 0
    """Of a timer, or of a delay level."""
    by_time: bool = False
    """Whether a timer is given as the delivery time, not as a delay."""
    course: TransactionCourse = TransactionCourse.COMMIT
    work_ms: int = 0
    """Time that the local transaction takes."""
    undecided_checks: int = 0
    """Checks that are answered with UNKNOWN before the state is told."""


class TimedScenario(ClusterScenario, frozen=True, kw_only=True):
    """A cluster, its faults, and the messages of a day."""

    operations: tuple[SendOperation, ...]

    @property
    def has_crashes(self) -> bool:
        """Whether brokers crash."""
        return any(event.fault is Fault.CRASH for event in self.events)


def draw_scenario(seed: int) -> TimedScenario:
    """Draw the scenario of a seed. In a quarter of them nothing fails but handlers."""
    check_seed(seed)
    rng = Random(f"day {seed}")
    bursts = [rng.randrange(5, 40) * SECOND_MS]
    bursts += sorted(rng.randrange(MINUTE_MS, HOUR_MS) for _ in range(rng.randint(1, 2)))
    return TimedScenario(
        seed=seed,
        brokers=rng.randint(1, 2),
        queues=rng.randint(1, 2),
        members=rng.randint(1, 2),
        handling_ms=rng.choice(((0, 5), (1, 50), (20, 400))),
        network_ms=rng.choice(((0, 0), (0, 3), (1, 40))),
        operations=_draw_operations(rng, bursts),
        events=_draw_events(rng, bursts) if seed % 4 else (),
    )


def _draw_operations(rng: Random, bursts: list[int]) -> tuple[SendOperation, ...]:
    has_poison = rng.random() < 0.2
    operations: list[SendOperation] = []
    for burst_ms in bursts:
        times = sorted(rng.randrange(BURST_MS) for _ in range(rng.randint(6, 14)))
        for at_ms in times:
            number = len(operations)
            is_poison = has_poison and number == 3
            operation = _draw_operation(rng, f"e{number}", burst_ms + at_ms, is_poison=is_poison)
            operations.append(operation)
    return tuple(operations)


def _draw_operation(rng: Random, name: str, at_ms: int, *, is_poison: bool) -> SendOperation:
    kind = rng.choice(
        (
            SendKind.PLAIN,
            SendKind.LEVEL,
            SendKind.TIMER,
            SendKind.TRANSACTION,
            SendKind.TRANSACTION,
        )
    )
    level = rng.randint(1, len(DEFAULT_LEVELS)) if kind is SendKind.LEVEL else 0
    wait_ms = DEFAULT_LEVELS[level - 1] if level else 0
    if kind is SendKind.TIMER:
        far_ms = 20 * HOUR_MS if rng.random() < FAR else 2 * HOUR_MS
        longest_ms = rng.choice((5 * SECOND_MS, MINUTE_MS, HOUR_MS, far_ms))
        wait_ms = rng.randrange(1, longest_ms)
    few = 0 if rng.random() < 0.8 else rng.randint(1, 3)
    return SendOperation(
        name=name,
        at_ms=at_ms,
        kind=kind,
        failures=POISON if is_poison else few,
        tag=rng.choice("ab"),
        weight=rng.randrange(10),
        level=level,
        wait_ms=wait_ms,
        by_time=rng.random() < 0.5,
        course=rng.choice((TransactionCourse.COMMIT, *TransactionCourse)),
        work_ms=rng.choice((0, 0, rng.randrange(5_000), rng.randrange(60_000))),
        undecided_checks=rng.choice((0, 0, 1, 3)),
    )


def _draw_events(rng: Random, bursts: list[int]) -> tuple[FaultEvent, ...]:
    """Some faults while messages are sent, others while messages wait."""
    events: list[FaultEvent] = []
    for _ in range(rng.randint(1, 6)):
        fault = rng.choice((Fault.CRASH, Fault.CRASH, *FAULTS))
        begin_ms = rng.choice(bursts)
        at_ms = begin_ms + rng.randrange(rng.choice((BURST_MS, 10 * MINUTE_MS, 2 * HOUR_MS)))
        down_ms = rng.randrange(rng.choice((SECOND_MS, MINUTE_MS, HOUR_MS)))
        number = rng.randrange(1_000)
        event = FaultEvent(
            at_ms=at_ms, fault=fault, consumer=number, broker=number, down_ms=down_ms
        )
        events.append(event)
    return tuple(sorted(events, key=lambda event: event.at_ms))
