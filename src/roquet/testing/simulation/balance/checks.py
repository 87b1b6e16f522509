"""Checks: what must hold of a simulated cluster once the dust has settled.

lost        an acknowledged message was never handled
owners      a queue has two owners, or none
order       messages of one order key were handled out of order, or two members at once
doubled     a message was handled twice, and nobody died or saw the group differently
late        a calm group took long to share its queues again
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from roquet.model.queue import MessageQueue
from roquet.testing.simulation.balance.history import (
    BalanceHistory,
    HandlingAttempt,
    QueueOwnership,
)

EXCUSED_MS: Final = 150_000
"""After a harsh fault progress may be unsaved so long: a silent client is noticed after 120 s."""


def lost(waiting: Sequence[str]) -> Iterator[str]:
    """Acknowledged messages that were never handled."""
    for name in waiting:
        yield f"lost: {name} was acknowledged and never handled"


def owners(held: dict[MessageQueue, list[str]]) -> Iterator[str]:
    """Queues without exactly one owner."""
    for queue, who in held.items():
        if len(who) != 1:
            yield f"owners: {queue} is held by {' and '.join(who) or 'nobody'}"


def order(history: BalanceHistory) -> Iterator[str]:
    """Of each order key, a message that began before one ahead of it was done."""
    acknowledged = {sent.name for sent in history.sent}
    last: dict[str, int] = {}
    done: set[str] = set()
    for moment in _moments(history.handlings):
        handling, begins = moment
        if handling.name not in acknowledged:
            continue
        if not begins:
            done.add(handling.name)
            continue
        highest = last.setdefault(handling.order_key, -1)
        if handling.number > highest:
            ahead = [f"{handling.order_key}:{n}" for n in range(handling.number)]
            for name in ahead:
                if name in acknowledged and name not in done:
                    yield f"order: {handling.member} began {handling.name} before {name} was done"
            last[handling.order_key] = handling.number


def together(history: BalanceHistory, forgiven: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Two members at work on one queue at one time; but not within the forgiven times."""
    died = {h.member: h.until_ms for h in history.holdings if h.ended_by == "killed"}
    by_queue: dict[MessageQueue, list[HandlingAttempt]] = {}
    for handling in history.handlings:
        by_queue.setdefault(handling.queue, []).append(handling)
    for queue, handlings in by_queue.items():
        for one, other in pairwise(sorted(handlings, key=lambda h: h.began_ms)):
            ended_ms = one.ended_ms if one.ended_ms is not None else died.get(one.member)
            overlap = ended_ms is None or other.began_ms < ended_ms
            if overlap and one.member != other.member and not _within(other.began_ms, forgiven):
                yield f"order: {one.member} and {other.member} were both at work on {queue}"


def doubled(history: BalanceHistory, *, calm: bool) -> Iterator[str]:
    """Messages that were handled with success twice, and no reason for it."""
    first: dict[tuple[MessageQueue, int], HandlingAttempt] = {}
    for handling in history.handlings:
        if handling.failed or handling.ended_ms is None:
            continue
        earlier = first.setdefault((handling.queue, handling.offset), handling)
        if earlier is not handling and not _excused(history, earlier, handling, calm=calm):
            yield (
                f"doubled: {handling.name} by {earlier.member} at {earlier.ended_ms} "
                f"and by {handling.member} at {handling.began_ms}"
            )


def _excused(
    history: BalanceHistory, one: HandlingAttempt, other: HandlingAttempt, *, calm: bool
) -> bool:
    holdings = [h for h in history.holdings if h.queue == one.queue]
    if any(h.ended_by == "killed" and h.member == one.member for h in holdings):
        return True
    if any(_overlap(a, b) for a in holdings for b in holdings if a.member != b.member):
        return True
    since_ms = other.began_ms - EXCUSED_MS
    return not calm and any(since_ms <= at <= other.began_ms for at, _ in history.unrest)


def _overlap(one: QueueOwnership, other: QueueOwnership) -> bool:
    """Whether two members held a queue at one time."""
    return (one.until_ms is None or other.since_ms < one.until_ms) and (
        other.until_ms is None or one.since_ms < other.until_ms
    )


def _within(at_ms: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= at_ms <= end for begin, end in spans)


def _moments(handlings: Sequence[HandlingAttempt]) -> list[tuple[HandlingAttempt, bool]]:
    """Begins and successful ends in the order of time; of one time, ends first."""
    moments = [(h.began_ms, 1, n, h) for n, h in enumerate(handlings)]
    moments += [
        (h.ended_ms, 0, n, h)
        for n, h in enumerate(handlings)
        if h.ended_ms is not None and not h.failed
    ]
    return [(h, bool(kind)) for _, kind, _, h in sorted(moments, key=lambda m: m[:3])]
