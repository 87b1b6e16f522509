"""Event logs: the flights that each consumer handled, and when; the report reads them.

A consumer appends 12 bytes to a file of its own when a flight is handled, before it acknowledges it
and without buffering, so that the log of a killed process is complete. Times are ms since the
start of the demo, big-endian.

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
    """One handled flight."""

    row: int
    at_ms: int
    stored_ms: int = 0
    """When its broker stored it, by the broker's clock."""


class TimeCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A value at the end of each step of time, in seconds."""

    at: Sequence[float]
    values: Sequence[float]


class QueuesOwned(msgspec.Struct, frozen=True):
    """The queues that a member owns from a time on."""

    at_ms: int
    queues: tuple[str, ...]


class QueueOwnershipSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The half-open time [start_ms, end_ms) for which a member owned a queue."""

    member: str
    queue: str
    start_ms: int
    end_ms: int


def pack(note: HandledFlight) -> bytes:
    """An entry as it is written to the file."""
    return RECORD_FORMAT.pack(note.row, note.at_ms, note.stored_ms)


def read(data: bytes) -> list[HandledFlight]:
    """All whole entries; a kill may have cut the last one."""
    whole = len(data) - len(data) % RECORD_FORMAT.size
    return [HandledFlight(*numbers) for numbers in RECORD_FORMAT.iter_unpack(data[:whole])]


def duplicates(books: Iterable[Sequence[HandledFlight]]) -> int:
    """Number of handlings of flights that had been handled before."""
    times = Counter(note.row for notes in books for note in notes)
    return times.total() - len(times)


def distinct_handled(books: Iterable[Sequence[HandledFlight]]) -> int:
    """Number of flights that were handled at least once."""
    return len({note.row for notes in books for note in notes})


def rate(moments_ms: Iterable[int], end_ms: int, step_ms: int = 500) -> TimeCurve:
    """Events per second in each step up to the end."""
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
    """The highest number in each step of flights that were stored and not handled yet.

    The time of storing is the broker's: a receipt often reaches the producer after a consumer has
    handled the flight. A flight that was never handled counts from its receipt on.
    """
    handled_ms: dict[int, int] = {}
    stored_ms = dict(enumerate(sent_ms))
    for note in (note for notes in books for note in notes):
        handled_ms[note.row] = min(note.at_ms, handled_ms.get(note.row, note.at_ms))
        stored_ms[note.row] = note.stored_ms
    steps = max(1, -(-end_ms // step_ms))
    events = [
        (ms, -1) for ms in stored_ms.values()
    ]  # a flight that is stored and handled in one ms has waited
    events += [(max(ms, stored_ms[row]), 1) for row, ms in handled_ms.items()]
    values = _peaks(sorted(events), steps, step_ms)
    return TimeCurve(at=[(n + 1) * step_ms / 1000 for n in range(steps)], values=values)


def _peaks(events: Iterable[tuple[int, int]], steps: int, step_ms: int) -> list[float]:
    """The highest count in each step; an event is (time in ms, decrease)."""
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
    """The spans for which members owned queues; `ends_ms` says when each member ended."""
    spans: list[QueueOwnershipSpan] = []
    for member, steps in changes.items():
        since: dict[str, int] = {}
        for step in [*steps, QueuesOwned(ends_ms[member], ())]:
            for queue in since.keys() - set(step.queues):
                start_ms = since.pop(queue)
                spans.append(
                    QueueOwnershipSpan(
                        member=member, queue=queue, start_ms=start_ms, end_ms=step.at_ms
                    )
                )
            for queue in step.queues:
                since.setdefault(queue, step.at_ms)
    return sorted(spans, key=lambda w: (w.queue, w.start_ms))
