"""Retention: which files may be deleted, by age or disk pressure, never the last file.

disk used   0 %            75 %             85 %              90 %
            │ old files go  │ old files go   │ the oldest go   │ and writes are
            │ at one hour   │ at any hour    │ at any age      │ refused

At any age: as far as all groups have read them, or read or not, as the policy says.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

HOUR_MS: Final = 3_600_000

FORCED_FILES_MAX: Final = 10
"""Files that disk pressure alone may delete in one step; the next check of the disk decides
again."""


CLOCK_JUMP_MS: Final = 60_000
"""A wall clock that gains this much between two checks was set, or the machine was suspended."""

CLOCK_DOUBT_MS: Final = HOUR_MS
"""For this long no files are deleted because of such a clock: an operator may correct it meanwhile,
and a deleted file cannot come back."""


class RetentionClock:
    """Clock that judges the age of files: the wall clock, unless that has recently jumped ahead."""

    def __init__(self) -> None:
        self._ahead_ms: int | None = None
        """Wall clock minus monotonic clock, as far as it is trusted."""
        self._doubted_since_ms: int | None = None

    def believed_ms(self, now_ms: int, stopwatch_ms: int) -> int:
        """Time by which files may be old, from both clocks; called at every check."""
        ahead_ms = now_ms - stopwatch_ms
        if self._ahead_ms is None or ahead_ms - self._ahead_ms <= CLOCK_JUMP_MS:
            self._ahead_ms, self._doubted_since_ms = ahead_ms, None
            return now_ms
        if self._doubted_since_ms is None:
            self._doubted_since_ms = stopwatch_ms
        if stopwatch_ms - self._doubted_since_ms < CLOCK_DOUBT_MS:
            return stopwatch_ms + self._ahead_ms
        self._ahead_ms, self._doubted_since_ms = ahead_ms, None
        return now_ms


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's retention settings. Ratios are of the whole disk, with Apache's defaults."""

    reserved_ms: int = 72 * HOUR_MS
    delete_hour: int = 4
    """Local hour of the day in which old files are deleted."""
    expire_ratio: float = 0.75
    force_ratio: float = 0.85
    refuse_ratio: float = 0.90
    free_min: int | None = None
    """Bytes that must stay free; replaces the ratios if given."""
    force_unread: bool = False
    """Whether disk pressure deletes files that are not old with messages that nobody has read."""


class DiskUsage(msgspec.Struct, frozen=True):
    """Size and free bytes of the disk that holds the files."""

    total: int
    free: int

    @property
    def ratio(self) -> float:
        """Used fraction of the disk, 0 to 1."""
        return 1 - self.free / self.total if self.total > 0 else 0.0


class FileAge(msgspec.Struct, frozen=True):
    """A file of the log and the store time of its last record."""

    start: int
    last_ms: int


def must_refuse_writes(usage: DiskUsage, policy: RetentionPolicy) -> bool:
    """Whether writes must be refused because the disk is almost full."""
    return usage.free < required_free_bytes(usage, policy)


def required_free_bytes(usage: DiskUsage, policy: RetentionPolicy) -> int:
    """Bytes that must be free for writes to be accepted."""
    if policy.free_min is not None:
        return policy.free_min
    return math.ceil(usage.total * (1 - policy.refuse_ratio))


def deletable_files(
    files: Sequence[FileAge],
    now_ms: int,
    local_hour: int,
    usage: DiskUsage,
    policy: RetentionPolicy,
    read_to: int | None = None,
) -> Sequence[FileAge]:
    """Files that may be deleted, oldest first; never the newest file.

    Only a prefix of the log can be deleted: files behind a kept one are kept, whatever their age.
    Disk pressure deletes no file that ends behind the position `read_to`; None: no such limit.
    """
    forced = FORCED_FILES_MAX if is_pressing(usage, policy) else 0
    may_expire = local_hour == policy.delete_hour or _is_filling(usage, policy)
    gone = 0
    for file, following in pairwise(files):
        is_old = now_ms - file.last_ms >= policy.reserved_ms
        may_force = gone < forced and (read_to is None or following.start <= read_to)
        if not (may_expire and is_old) and not may_force:
            break
        gone += 1
    return files[:gone]


def _is_filling(usage: DiskUsage, policy: RetentionPolicy) -> bool:
    if policy.free_min is not None:
        return usage.free < 3 * policy.free_min
    return usage.ratio > policy.expire_ratio


def is_pressing(usage: DiskUsage, policy: RetentionPolicy) -> bool:
    """Whether files that are not old must be deleted, too, before writes must be refused."""
    if policy.free_min is not None:
        return usage.free < 2 * policy.free_min
    return usage.ratio > policy.force_ratio
