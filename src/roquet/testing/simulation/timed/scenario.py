"""Plan: what a seed lets be sent and go wrong in a day, drawn whole before anything runs."""

from enum import Enum
from random import Random
from typing import Final

import msgspec

from roquet.model.errors import UsageError
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

BURST_MS: Final = 20_000
"""Messages are sent in bursts so long; between them time may be passed over."""

RETRIES: Final = 16
"""Tries after the first one, as a group's settings say by default."""

POISON: Final = RETRIES + 1
"""So often a message fails that nobody can handle: it ends with the dead letters."""


FAR: Final = 0.05
"""Share of timers that may wait for nearly a day; the others wait two hours at most."""


class SendKind(Enum):
    """How a message is sent."""

    PLAIN = "at once"
    LEVEL = "at a delay level"
    TIMER = "at a time"
    TRANSACTION = "in a transaction"


class TransactionCourse(Enum):
    """What becomes of a transaction."""

    COMMIT = "commits"
    ROLL_BACK = "rolls back"
    LATER = "commits when it is asked"
    NOT_LATER = "rolls back when it is asked"
    NEVER = "never says"
    DIES = "dies before it commits"
    DIES_EARLY = "dies before its work is done"


KEPT: Final = frozenset({TransactionCourse.COMMIT, TransactionCourse.LATER, TransactionCourse.DIES})
"""Those whose work gets done: their messages have to be delivered."""


class SendOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One message, and what is to happen to it."""

    name: str
    at_ms: int
    kind: SendKind
    failures: int
    """How often its handling fails."""
    tag: str
    weight: int
    level: int = 0
    wait_ms: int = 0
    """Of a timer, or of a level."""
    by_time: bool = False
    """Whether a timer is given as the time itself, not as a delay."""
    course: TransactionCourse = TransactionCourse.COMMIT
    work_ms: int = 0
    """How long the work of a transaction takes."""
    unsure: int = 0
    """So often who is asked does not know yet."""


class TimedFault(Enum):
    """What goes wrong."""

    CRASH = "a broker's process dies"
    KILL = "a member's process dies"
    SILENCE = "a member's machine is gone"
    LEAVE = "a member goes in good order"
    JOIN = "a member comes"
    CHANGE = "the producer's process dies, the next one takes over"


class TimedFaultEvent(msgspec.Struct, frozen=True):
    """A mishap; the number chooses whom it happens to."""

    at_ms: int
    fault: TimedFault
    who: int
    down_ms: int


class TimedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is decided beforehand."""

    seed: int
    brokers: int
    queues: int
    members: int
    handling_ms: tuple[int, int]
    network_ms: tuple[int, int]
    operations: tuple[SendOperation, ...]
    events: tuple[TimedFaultEvent, ...]

    @property
    def crashes(self) -> bool:
        """Whether brokers die in it."""
        return any(event.fault is TimedFault.CRASH for event in self.events)


def plan(seed: int) -> TimedScenario:
    """The day of a seed. In a quarter of them nothing goes wrong but handlers."""
    if seed < 0:
        raise UsageError(f"a seed is a number from 0 on, not {seed}")
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
        events=_events(rng, bursts) if seed % 4 else (),
    )


def _draw_operations(rng: Random, bursts: list[int]) -> tuple[SendOperation, ...]:
    poison = rng.random() < 0.2
    found: list[SendOperation] = []
    for burst_ms in bursts:
        times = sorted(rng.randrange(BURST_MS) for _ in range(rng.randint(6, 14)))
        for at_ms in times:
            name = f"e{len(found)}"
            is_poison = poison and len(found) == 3
            found.append(_draw_operation(rng, name, burst_ms + at_ms, is_poison=is_poison))
    return tuple(found)


def _draw_operation(rng: Random, name: str, at_ms: int, *, is_poison: bool) -> SendOperation:
    kind = rng.choice(
        (SendKind.PLAIN, SendKind.LEVEL, SendKind.TIMER, SendKind.TRANSACTION, SendKind.TRANSACTION)
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
        unsure=rng.choice((0, 0, 1, 3)),
    )


def _events(rng: Random, bursts: list[int]) -> tuple[TimedFaultEvent, ...]:
    """Some of them while messages are sent, others while messages wait."""
    events: list[TimedFaultEvent] = []
    for _ in range(rng.randint(1, 6)):
        fault = rng.choice((TimedFault.CRASH, TimedFault.CRASH, *TimedFault))
        begin_ms = rng.choice(bursts)
        at_ms = begin_ms + rng.randrange(rng.choice((BURST_MS, 10 * MINUTE_MS, 2 * HOUR_MS)))
        down_ms = rng.randrange(rng.choice((SECOND_MS, MINUTE_MS, HOUR_MS)))
        events.append(TimedFaultEvent(at_ms, fault, rng.randrange(1_000), down_ms))
    return tuple(sorted(events, key=lambda event: event.at_ms))
