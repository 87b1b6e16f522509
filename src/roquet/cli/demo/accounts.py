"""What the consumers handled, and when: the books that the report is made from.

Each consumer notes a flight when its work is done, before it says so to anybody: 8 bytes in a file
of its own, written at once, so that a process that is killed leaves honest books.

    ┌─────────┬───────────────────────┐
    │ row (4) │ ms since the start (4)│
    └─────────┴───────────────────────┘
"""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

NOTE: Final = struct.Struct(">II")


class Note(msgspec.Struct, frozen=True):
    """One flight was handled."""

    row: int
    at_ms: int


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A number at the end of each step of time, in seconds."""

    at: Sequence[float]
    values: Sequence[float]


class Owned(msgspec.Struct, frozen=True):
    """From this moment on a member owns these queues, and no others."""

    at_ms: int
    queues: tuple[str, ...]


class While(msgspec.Struct, frozen=True, kw_only=True):
    """A member owned a queue for a while."""

    member: str
    queue: str
    start_ms: int
    end_ms: int


def pack(row: int, at_ms: int) -> bytes:
    """A note as it goes to the file."""
    return NOTE.pack(row, at_ms)


def read(data: bytes) -> list[Note]:
    """All whole notes; a kill may have cut the last one."""
    whole = len(data) - len(data) % NOTE.size
    return [Note(row, at_ms) for row, at_ms in NOTE.iter_unpack(data[:whole])]


def twice(books: Iterable[Sequence[Note]]) -> int:
    """How often a flight was handled that had been handled before."""
    times = Counter(note.row for notes in books for note in notes)
    return times.total() - len(times)


def handled(books: Iterable[Sequence[Note]]) -> int:
    """How many flights were handled at least once."""
    return len({note.row for notes in books for note in notes})


def rate(moments_ms: Iterable[int], end_ms: int, step_ms: int = 500) -> Curve:
    """Events a second, in each step up to the end."""
    steps = max(1, -(-end_ms // step_ms))
    counts = Counter(min(ms // step_ms, steps - 1) for ms in moments_ms)
    return Curve(
        at=[(n + 1) * step_ms / 1000 for n in range(steps)],
        values=[counts[n] * 1000 / step_ms for n in range(steps)],
    )


def lag(
    sent_ms: Iterable[int], books: Iterable[Sequence[Note]], end_ms: int, step_ms: int = 500
) -> Curve:
    """Flights that are stored and not yet handled by anybody, at the end of each step."""
    first: dict[int, int] = {}
    for note in (note for notes in books for note in notes):
        first[note.row] = min(note.at_ms, first.get(note.row, note.at_ms))
    stored, done = rate(sent_ms, end_ms, step_ms), rate(first.values(), end_ms, step_ms)
    behind, values = 0.0, []
    for arrived, left in zip(stored.values, done.values, strict=True):
        behind += (arrived - left) * step_ms / 1000
        values.append(max(0.0, behind))  # a note may be older than its receipt
    return Curve(at=stored.at, values=values)


def whiles(changes: Mapping[str, Sequence[Owned]], ends_ms: Mapping[str, int]) -> list[While]:
    """Who owned which queue from when to when; `ends_ms` says when each member ended."""
    found: list[While] = []
    for member, steps in changes.items():
        since: dict[str, int] = {}
        for step in [*steps, Owned(ends_ms[member], ())]:
            for queue in since.keys() - set(step.queues):
                start_ms = since.pop(queue)
                found.append(
                    While(member=member, queue=queue, start_ms=start_ms, end_ms=step.at_ms)
                )
            for queue in step.queues:
                since.setdefault(queue, step.at_ms)
    return sorted(found, key=lambda w: (w.queue, w.start_ms))
