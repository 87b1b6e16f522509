"""The difference between two assignments: what to drop, what to start."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import Strategy, average, share_of, validated_assignment

REBALANCE_PERIOD_MS: Final = 20_000
"""Members look again this often even when nobody tells them of a change."""

UNBALANCED_PERIOD_MS: Final = 1_000
"""So soon while looks do not end well: a broker did not answer, a topic has no route."""

_FIRST_RETRY_MS: Final = 250
"""After the first look that did not end well: a new topic's route is known within that."""

LOCK_RETRY_MS: Final = 500
"""After a look that found a queue of an ordered group still locked by another member, as Java."""

PULL_SILENCE_MS: Final = 120_000
"""A queue whose pulls went silent for so long is dropped and taken again, as in Java."""


class AssignmentDiff(msgspec.Struct, frozen=True):
    """What turns the held queues into the assigned ones."""

    drop: tuple[MessageQueue, ...]
    start: tuple[MessageQueue, ...]

    @property
    def is_nothing(self) -> bool:
        """Whether all stays as it is."""
        return not (self.drop or self.start)


def difference(held: Iterable[MessageQueue], assigned: Iterable[MessageQueue]) -> AssignmentDiff:
    """What to drop and what to start, each sorted; a queue in both is left alone."""
    before, after = set(held), set(assigned)
    return AssignmentDiff(tuple(sorted(before - after)), tuple(sorted(after - before)))


def member_queues(
    member: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    strategy: Strategy = average,
) -> Sequence[MessageQueue] | None:
    """One member's queues of a topic; None when the facts allow no answer and it keeps its own.

    A topic without queues leaves nobody anything. A list without the asking member is not to be
    trusted: the broker has not heard of it yet, or forgot everybody when it started again. A
    strategy that fails, or answers nonsense, is a UsageError.
    """
    if not queues:
        return ()
    if member not in members:
        return None
    mine = share_of(member, validated_assignment(queues, members, strategy))
    # CONFIG names queues of all topics at once.
    return [queue for queue in mine if queue.topic == queues[0].topic]


def next_rebalance_ms(
    failures: int, period_ms: int = REBALANCE_PERIOD_MS, *, is_locked_out: bool = False
) -> int:
    """When to look again after so many looks in a row that did not end well."""
    if not failures:
        return period_ms
    if is_locked_out:
        return min(LOCK_RETRY_MS, period_ms)
    return min(_FIRST_RETRY_MS << min(failures - 1, 20), UNBALANCED_PERIOD_MS, period_ms)
