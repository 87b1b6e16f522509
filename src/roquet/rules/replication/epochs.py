"""Epochs of a log: appended at an election, cut with the log, compared with those of a master.

    own      1 ────────┤ 2 ───┤ 3 ──────────┐ end
    master   1 ────────┤ 2 ─────────┤ 4 ────────────┐ end
                              ▲
                              └ the consistent point: what follows is truncated

Two logs that have an epoch from the same start on were written by one master there, so they are
equal up to the smaller of its two ends. Lists are in order: epochs and starts both rise. Source:
Apache RocketMQ 5.5.0, EpochFileCache.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from roquet.model.epoch import EpochEntry

Epochs: TypeAlias = tuple[EpochEntry, ...]

NO_EPOCH: Final = -1
"""In place of the last epoch of a log without any."""


class EpochExtent(msgspec.Struct, frozen=True):
    """Part of a log that one epoch covers: positions [start, end)."""

    entry: EpochEntry
    end: int | None
    """None: the epoch is the last one, and the log grows in it."""


def last_epoch(epochs: Sequence[EpochEntry]) -> int:
    """Number of the last epoch, or `NO_EPOCH`."""
    return epochs[-1].epoch if epochs else NO_EPOCH


def append_epoch(epochs: Sequence[EpochEntry], epoch: int, start: int) -> Epochs:
    """Epochs of a log whose next byte, at `start`, belongs to a new epoch.

    The caller has checked that the epoch is larger than the last one. An epoch without a byte is
    replaced. Apache's broker keeps it and drops the new one, whose log is then labelled with the
    old number: two masters that were elected at the same end write different bytes under one
    epoch, and neither log is truncated when they meet.
    """
    assert epoch > last_epoch(epochs), "epochs rise"
    return *truncate_epochs(epochs, start), EpochEntry(epoch, start)


def truncate_epochs(epochs: Sequence[EpochEntry], end: int) -> Epochs:
    """Epochs of a log that is cut at `end`."""
    return tuple(entry for entry in epochs if entry.start < end)


def drop_expired_epochs(epochs: Sequence[EpochEntry], first: int) -> Epochs:
    """Epochs of a log whose files before position `first` are deleted.

    One that ends at `first` stays, as in Apache's broker: a replica may end there.
    """
    ends = [entry.start for entry in epochs[1:]]
    expired = sum(end < first for end in ends)
    return tuple(epochs[expired:])


def extent_at(epochs: Sequence[EpochEntry], position: int) -> EpochExtent | None:
    """Epoch of the byte at a position, or of the next byte at the log's end.

    None: the position is before the first epoch. No frame of a stream crosses an extent's end. A
    master closes the connection of a replica that asks for a position without an epoch.
    """
    end: int | None = None
    for entry in reversed(epochs):
        if entry.start <= position:
            return EpochExtent(entry, end)
        end = entry.start
    return None


def consistent_point(
    own: Sequence[EpochEntry], own_end: int, master: Sequence[EpochEntry], master_end: int
) -> int | None:
    """Position up to which a replica's log certainly equals its master's.

    The replica truncates its log there, its epochs with it (`truncate_epochs`), and goes on. None:
    the logs have no epoch in common, and only an operator can tell which one counts.
    """
    others = {entry: index for index, entry in enumerate(master)}
    for index in reversed(range(len(own))):
        if (other := others.get(own[index])) is not None:
            return min(_end(own, index, own_end), _end(master, other, master_end))
    return None


def _end(epochs: Sequence[EpochEntry], index: int, log_end: int) -> int:
    return epochs[index + 1].start if index + 1 < len(epochs) else log_end
