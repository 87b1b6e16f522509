"""The table of what SEND_OK survives: one row for each way to run a group of three brokers.

docs/topics/promises.md has it as a page, and `test_promise_table` shows each cell.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec


class Loss(StrEnum):
    """A fault after the answer; the name of its column."""

    PROCESS = "master's process killed"
    MACHINE = "master's machine loses power"
    DISK = "master's disk gone"
    TWO = "disks of two of three gone"
    POWER = "power lost at all three"


class Mode(StrEnum):
    """How the master got its role."""

    ASYNC_MASTER = "`ASYNC_MASTER`"
    SYNC_MASTER = "`SYNC_MASTER`"
    CONTROLLER = "controller"


ALL: Final = 0
"""In place of a number of logs: the whole sync-state set, which are all three."""


class PromiseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A way to run the group, and the faults that an acknowledged message survives there."""

    mode: Mode
    logs: tuple[int, ...]
    """Values of inSyncReplicas to which it applies; `ALL` for allAckInSyncStateSet."""
    sync_flush: bool
    kept: frozenset[Loss]

    @property
    def cells(self) -> Sequence[str]:
        """Texts of the row's cells."""
        logs = " or ".join("whole set" if number == ALL else str(number) for number in self.logs)
        flush = "synchronous" if self.sync_flush else "asynchronous"
        return [self.mode, logs, flush, *("kept" if loss in self.kept else "lost" for loss in Loss)]


_ALONE: Final = frozenset({Loss.PROCESS})
_TWO: Final = frozenset({Loss.PROCESS, Loss.MACHINE, Loss.DISK})
_THREE: Final = _TWO | {Loss.TWO}

_BY_LOGS: Final[dict[tuple[Mode, tuple[int, ...]], tuple[frozenset[Loss], frozenset[Loss]]]] = {
    (Mode.ASYNC_MASTER, (1, 2, 3)): (_ALONE, frozenset({Loss.MACHINE})),
    (Mode.SYNC_MASTER, (1,)): (_ALONE, frozenset({Loss.MACHINE})),
    (Mode.SYNC_MASTER, (2,)): (_TWO, frozenset()),
    (Mode.SYNC_MASTER, (3,)): (_THREE, frozenset()),
    (Mode.CONTROLLER, (1,)): (frozenset(), frozenset()),
    (Mode.CONTROLLER, (2,)): (_TWO, frozenset()),
    (Mode.CONTROLLER, (3, ALL)): (_THREE, frozenset()),
}
"""What is kept whatever is flushed, and what besides the loss of all power with a flush."""


def rows() -> Iterator[PromiseRow]:
    """All rows, in the order of the page."""
    for (mode, logs), (kept, by_flush) in _BY_LOGS.items():
        yield PromiseRow(mode=mode, logs=logs, sync_flush=False, kept=kept)
        flushed = kept | by_flush | {Loss.POWER}
        yield PromiseRow(mode=mode, logs=logs, sync_flush=True, kept=flushed)


def page_lines() -> list[str]:
    """The table in Markdown."""
    head = ["role", "logs needed", "the master's flush", *Loss]
    body = [row.cells for row in rows()]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body)]
