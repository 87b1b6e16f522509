"""Checks of the balance workload, once the cluster has settled.

lost        an acknowledged message was never handled
owners      a queue has two owners, or none
order       messages of one order key were handled out of order, or two consumers at once
doubled     a message was handled twice, and no consumer died or saw the group differently
late        a calm group took long to share its queues again
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from roquet.model.queue import MessageQueue
from simulation.balance.history import BalanceHistory, QueueOwnership
from simulation.balance.scenario import message_name, parse_message_name
from simulation.history import HandlingAttempt

EXCUSED_MS: Final = 150_000
"""After a harsh fault progress may stay unsaved so long: a silent client is noticed in 120 s."""


def lost(unhandled: Sequence[str]) -> Iterator[str]:
    """Acknowledged messages that were never handled."""
    for name in unhandled:
        yield f"lost: {name} was acknowledged and never handled"


def owners(owners_of: Mapping[MessageQueue, Sequence[str]]) -> Iterator[str]:
    """Queues without exactly one owner."""
    for queue, consumers in owners_of.items():
        if len(consumers) != 1:
            yield f"owners: {queue} is held by {' and '.join(consumers) or 'nobody'}"


def order(history: BalanceHistory) -> Iterator[str]:
    """Messages that began before one ahead of them, of the same order key, was done."""
    highest: dict[str, int] = {}
    done: set[str] = set()
    for attempt, begins in _begins_and_ends(history.attempts):
        if attempt.name not in history.acknowledged:
            continue
        if not begins:
            done.add(attempt.name)
            continue
        order_key, number = parse_message_name(attempt.name)
        if number > highest.setdefault(order_key, -1):
            for name in (message_name(order_key, ahead) for ahead in range(number)):
                if name in history.acknowledged and name not in done:
                    yield f"order: {attempt.consumer} began {attempt.name} before {name} was done"
            highest[order_key] = number


def together(history: BalanceHistory, forgiven: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Two consumers handling one queue at a time, but not within the forgiven (begin, end)."""
    died = {o.consumer: o.until_ms for o in history.ownerships if o.ended_by == "killed"}
    by_queue: dict[MessageQueue, list[HandlingAttempt]] = {}
    for attempt in history.attempts:
        by_queue.setdefault(attempt.queue, []).append(attempt)
    for queue, attempts in by_queue.items():
        for one, other in pairwise(sorted(attempts, key=lambda attempt: attempt.began_ms)):
            ended_ms = one.ended_ms if one.ended_ms is not None else died.get(one.consumer)
            overlaps = ended_ms is None or other.began_ms < ended_ms
            if overlaps and one.consumer != other.consumer and not _within(other, forgiven):
                yield f"order: {one.consumer} and {other.consumer} were both at work on {queue}"


def doubled(history: BalanceHistory, *, calm: bool) -> Iterator[str]:
    """Messages that were handled with success twice without a fault that explains it."""
    first: dict[tuple[MessageQueue, int], HandlingAttempt] = {}
    for attempt in history.attempts:
        if attempt.failed or attempt.ended_ms is None:
            continue
        earlier = first.setdefault((attempt.queue, attempt.offset), attempt)
        if earlier is not attempt and not _is_excused(history, earlier, attempt, calm=calm):
            yield (
                f"doubled: {attempt.name} by {earlier.consumer} at {earlier.ended_ms} "
                f"and by {attempt.consumer} at {attempt.began_ms}"
            )


def _is_excused(
    history: BalanceHistory, one: HandlingAttempt, other: HandlingAttempt, *, calm: bool
) -> bool:
    ownerships = [o for o in history.ownerships if o.queue == one.queue]
    if any(o.ended_by == "killed" and o.consumer == one.consumer for o in ownerships):
        return True
    if any(_overlap(a, b) for a in ownerships for b in ownerships if a.consumer != b.consumer):
        return True
    since_ms = other.began_ms - EXCUSED_MS
    return not calm and any(since_ms <= d.at_ms <= other.began_ms for d in history.disturbances)


def _overlap(one: QueueOwnership, other: QueueOwnership) -> bool:
    """Whether two consumers owned a queue at one time."""
    return (one.until_ms is None or other.since_ms < one.until_ms) and (
        other.until_ms is None or one.since_ms < other.until_ms
    )


def _within(attempt: HandlingAttempt, spans: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= attempt.began_ms <= end for begin, end in spans)


def _begins_and_ends(attempts: Sequence[HandlingAttempt]) -> list[tuple[HandlingAttempt, bool]]:
    """Begins (True) and successful ends (False) in order of time; at one time, ends first."""
    moments = [(attempt.began_ms, 1, n, attempt) for n, attempt in enumerate(attempts)]
    moments += [
        (attempt.ended_ms, 0, n, attempt)
        for n, attempt in enumerate(attempts)
        if attempt.ended_ms is not None and not attempt.failed
    ]
    return [(m[3], bool(m[1])) for m in sorted(moments, key=lambda m: m[:3])]
