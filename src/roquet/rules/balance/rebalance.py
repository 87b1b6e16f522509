"""Rebalancing: one member's queues, the difference to those it holds, and when to look again."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import Strategy, average, share_of, validated_assignment

REBALANCE_PERIOD_MS: Final = 20_000
"""Members rebalance this often even without a notice of a change."""

UNBALANCED_PERIOD_MS: Final = 1_000
"""Period while rebalancing fails: a broker did not answer, or a topic has no route."""

_FIRST_RETRY_MS: Final = 250
"""Delay after the first failure: a new topic's route is known within it."""

LOCK_RETRY_MS: Final = 500
"""Delay while a queue of an ordered group is still locked by another member, as in Java."""

PULL_SILENCE_MS: Final = 120_000
"""A queue without a completed pull for this long is dropped and taken again, as in Java."""


class AssignmentDiff(msgspec.Struct, frozen=True):
    """Queues to drop and to start, to get from the held queues to the assigned ones."""

    drop: tuple[MessageQueue, ...]
    start: tuple[MessageQueue, ...]


def difference(held: Iterable[MessageQueue], assigned: Iterable[MessageQueue]) -> AssignmentDiff:
    """Queues to drop and to start, each sorted; a queue in both sets is left alone."""
    before, after = set(held), set(assigned)
    return AssignmentDiff(tuple(sorted(before - after)), tuple(sorted(after - before)))


def member_queues(
    member: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    strategy: Strategy = average,
) -> Sequence[MessageQueue] | None:
    """One member's queues of a topic; None if the facts allow no answer and it keeps its own.

    A topic without queues leaves nobody anything. A member list without the asking member cannot be
    trusted: the broker has not heard of it yet, or forgot everybody when it restarted. Raises
    UsageError for a strategy that fails or returns a wrong assignment.
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
    """Delay until the next rebalance, after `failures` failed ones in sequence."""
    if not failures:
        return period_ms
    if is_locked_out:
        return min(LOCK_RETRY_MS, period_ms)
    return min(_FIRST_RETRY_MS << min(failures - 1, 20), UNBALANCED_PERIOD_MS, period_ms)
