"""What the consumers handled, and when: the books that the report is made from.

Each consumer notes a flight when its work is done, before it says so to anybody: 12 bytes in a file
of its own, written at once, so that a process that is killed leaves honest books. The times are ms
since the start.

    ┌─────────┬────────────────┬──────────────────────┐
    │ row (4) │ handled at (4) │ stored by broker (4) │
    └─────────┴────────────────┴──────────────────────┘
"""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

RECORD_FORMAT: Final = struct.Struct(">III")


class HandledFlight(msgspec.Struct, frozen=True):
    """One flight was handled."""

    row: int
    at_ms: int
    stored_ms: int = 0
    """When its broker had stored it, by the broker's clock."""


class TimeCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A number at the end of each step of time, in seconds."""

    at: Sequence[float]
    values: Sequence[float]


class QueuesOwned(msgspec.Struct, frozen=True):
    """From this moment on a member owns these queues, and no others."""

    at_ms: int
    queues: tuple[str, ...]


class QueueOwnershipSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A member owned a queue for a while."""

    member: str
    queue: str
    start_ms: int
    end_ms: int


def pack(note: HandledFlight) -> bytes:
    """A note as it goes to the file."""
    return RECORD_FORMAT.pack(note.row, note.at_ms, note.stored_ms)


def read(data: bytes) -> list[HandledFlight]:
    """All whole notes; a kill may have cut the last one."""
    whole = len(data) - len(data) % RECORD_FORMAT.size
    return [HandledFlight(*numbers) for numbers in RECORD_FORMAT.iter_unpack(data[:whole])]


def duplicates(books: Iterable[Sequence[HandledFlight]]) -> int:
    """How often a flight was handled that had been handled before."""
    times = Counter(note.row for notes in books for note in notes)
    return times.total() - len(times)


def distinct_handled(books: Iterable[Sequence[HandledFlight]]) -> int:
    """How many flights were handled at least once."""
    return len({note.row for notes in books for note in notes})


def rate(moments_ms: Iterable[int], end_ms: int, step_ms: int = 500) -> TimeCurve:
    """Events a second, in each step up to the end."""
    steps = max(1, -(-end_ms // step_ms))
    counts = Counter(min(ms // step_ms, steps - 1) for ms in moments_ms)
    return TimeCurve(
        at=[(n + 1) * step_ms / 1000 for n in range(steps)],
        values=[counts[n] * 1000 / step_ms for n in range(steps)],
    )


def lag(
    sent_ms: Sequence[int],
    books: Iterable[Sequence[HandledFlight]],
    end_ms: int,
    step_ms: int = 100,
) -> TimeCurve:
    """The most flights in each step that were stored and not yet handled by anybody.

    A flight is stored when its broker says so, since a receipt reaches the producer later, often
    after a consumer has handled the flight. One that nobody handled counts from its receipt on.
    """
    handled_ms: dict[int, int] = {}
    stored_ms = dict(enumerate(sent_ms))
    for note in (note for notes in books for note in notes):
        handled_ms[note.row] = min(note.at_ms, handled_ms.get(note.row, note.at_ms))
        stored_ms[note.row] = note.stored_ms
    steps = max(1, -(-end_ms // step_ms))
    events = [(ms, -1) for ms in stored_ms.values()]  # what comes and goes in one ms has waited
    events += [(max(ms, stored_ms[row]), 1) for row, ms in handled_ms.items()]
    values = _peaks(sorted(events), steps, step_ms)
    return TimeCurve(at=[(n + 1) * step_ms / 1000 for n in range(steps)], values=values)


def _peaks(events: Iterable[tuple[int, int]], steps: int, step_ms: int) -> list[float]:
    """The highest count in each step; an event is a time and what it takes away."""
    values = [0.0] * steps
    behind = at = 0
    for ms, less in events:
        for step in range(at + 1, min(ms // step_ms, steps - 1) + 1):
            at, values[step] = step, behind
        behind -= less
        values[at] = max(values[at], behind)
    values[at + 1 :] = [float(behind)] * (steps - at - 1)
    return values


def ownership_spans(
    changes: Mapping[str, Sequence[QueuesOwned]], ends_ms: Mapping[str, int]
) -> list[QueueOwnershipSpan]:
    """Who owned which queue from when to when; `ends_ms` says when each member ended."""
    found: list[QueueOwnershipSpan] = []
    for member, steps in changes.items():
        since: dict[str, int] = {}
        for step in [*steps, QueuesOwned(ends_ms[member], ())]:
            for queue in since.keys() - set(step.queues):
                start_ms = since.pop(queue)
                found.append(
                    QueueOwnershipSpan(
                        member=member, queue=queue, start_ms=start_ms, end_ms=step.at_ms
                    )
                )
            for queue in step.queues:
                since.setdefault(queue, step.at_ms)
    return sorted(found, key=lambda w: (w.queue, w.start_ms))
