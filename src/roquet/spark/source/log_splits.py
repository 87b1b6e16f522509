"""Log parts: which bytes of which log files each task of a read of store files takes."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions
from roquet.store.filesystem.files import RealFiles

SPLIT_BYTES_MIN: Final = 16 * 1024 * 1024
"""Bytes that a task reads in the time it takes to start one."""

NAME_SIZE: Final = 20
"""A log file is called by the position of its first byte."""

HEAD_SIZE: Final = 8
"""Bytes that are never all zero where a record begins: its size, and a magic number."""


class LogSplit(msgspec.Struct, frozen=True):
    """A part of a log file."""

    path: str
    position: int
    start: int
    stop: int
    until: int | None = None
    """Where the next file of the log begins; None for the last one that is in use."""


def plan_splits(folder: Path, given: SourceOptions) -> list[list[LogSplit]]:
    """The files of a store, cut and dealt to as many tasks as are worth it."""
    files = log_files(folder)
    ends = _ends(files)
    cores = given.max_partitions or max(given.min_partitions, os.cpu_count() or 1)
    size = max(SPLIT_BYTES_MIN, -(-sum(end for end, _ in ends) // max(cores, 1)))
    parts: list[list[LogSplit]] = [[]]
    room = size
    for (path, position), (end, until) in zip(files, ends, strict=True):
        at, length = 0, path.stat().st_size
        while at < end or (at == 0 and until is not None):
            stop = min(at + room, end)
            # The last part takes what is behind the bytes in use, too: there may be more by then.
            last = length if stop == end else stop
            parts[-1].append(LogSplit(str(path), position, at, last, until))
            room -= stop - at
            at = max(stop, 1)
            if room <= 0:
                parts.append([])
                room = size
    return [part for part in parts if part]


def log_files(folder: Path) -> list[tuple[Path, int]]:
    """The log files of a store directory, or of the directory of a log itself, in their order."""
    if not folder.is_dir():
        raise ConfigError(f"store {str(folder)!r} is no directory on this machine")
    inner = folder / "commitlog"
    place = inner if inner.is_dir() else folder
    names = [path for path in place.iterdir() if _is_log(path)]
    if not names:
        raise ConfigError(
            f"store {str(folder)!r} holds no commit log: neither commitlog/ nor files whose names "
            f"are {NAME_SIZE} digits"
        )
    return [(path, int(path.name)) for path in sorted(names)]


def used_bytes(path: Path) -> int:
    """Bytes of a file that may hold something."""
    return RealFiles().data_end(path, path.stat().st_size)


def _ends(files: list[tuple[Path, int]]) -> list[tuple[int, int | None]]:
    """How far each file may hold something, and where the next one in use begins.

    Brokers make the next file before they need it: it is not in use while it begins with zeros.
    """
    last = max((n for n, (path, _) in enumerate(files) if _is_in_use(path)), default=-1)
    untils = [after for _, (_, after) in pairwise(files)]
    return [
        (path.stat().st_size, untils[number]) if number < last else (used_bytes(path), None)
        for number, (path, _) in enumerate(files)
    ]


def _is_in_use(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(HEAD_SIZE))


def _is_log(path: Path) -> bool:
    return len(path.name) == NAME_SIZE and path.name.isdecimal() and path.is_file()
