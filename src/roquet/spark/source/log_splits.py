"""Log splits: the byte ranges of log files that each task of a store-file read takes."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions
from roquet.spark.session import cores_of_environment
from roquet.store.filesystem.files import RealFiles

SPLIT_BYTES_MIN: Final = 16 * 1024 * 1024
"""Fewest bytes of a further task: a task reads them in the time that it takes to start."""

SPLIT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of a task where the cores of the session are unknown, as in Spark's own file sources."""

NAME_SIZE: Final = 20
"""Digits of a log file's name, which is the position of its first byte."""

HEAD_SIZE: Final = 8
"""Bytes that are never all zero where a record begins: its size, and a magic number."""


class LogSplit(msgspec.Struct, frozen=True):
    """The bytes [start, stop) of a log file that begins at `position`."""

    path: str
    position: int
    start: int
    stop: int
    until: int | None = None
    """Position of the next file in use; None for the last one."""


def plan_splits(folder: Path, settings: SourceOptions) -> list[list[LogSplit]]:
    """The log files of a store, cut into splits of about equal size for each task."""
    files = log_files(folder)
    ends = _ends(files)
    total = sum(end for end, _ in ends)
    size = max(SPLIT_BYTES_MIN, -(-total // _tasks_max(settings, total)))
    tasks: list[list[LogSplit]] = [[]]
    left = size
    for (path, position), (end, until) in zip(files, ends, strict=True):
        at, length = 0, path.stat().st_size
        while at < end or (at == 0 and until is not None):
            stop = min(at + left, end)
            # The last split includes the bytes behind those in use: the broker may have appended.
            last = length if stop == end else stop
            tasks[-1].append(LogSplit(str(path), position, at, last, until))
            left -= stop - at
            at = max(stop, 1)
            if left <= 0:
                tasks.append([])
                left = size
    return [splits for splits in tasks if splits]


def _tasks_max(settings: SourceOptions, total: int) -> int:
    """The most tasks: those of the settings, one for each core, or by size for unknown cores."""
    if settings.max_partitions:
        return settings.max_partitions
    cores = cores_of_environment() or max(os.cpu_count() or 1, -(-total // SPLIT_BYTES))
    return max(settings.min_partitions, cores)


def log_files(folder: Path) -> list[tuple[Path, int]]:
    """Path and position of the log files of a store directory, or of its commitlog, in order."""
    if not folder.is_dir():
        raise ConfigError(f"store {str(folder)!r} is no directory on this machine")
    inner = folder / "commitlog"
    directory = inner if inner.is_dir() else folder
    paths = [
        path
        for path in directory.iterdir()
        if len(path.name) == NAME_SIZE and path.name.isdecimal() and path.is_file()
    ]
    if not paths:
        raise ConfigError(
            f"store {str(folder)!r} holds no commit log: neither commitlog/ nor files whose names "
            f"are {NAME_SIZE} digits"
        )
    return [(path, int(path.name)) for path in sorted(paths)]


def used_bytes(path: Path) -> int:
    """The end of a file's last data: the rest is a hole or zeros."""
    return RealFiles().data_end(path, path.stat().st_size)


def _ends(files: list[tuple[Path, int]]) -> list[tuple[int, int | None]]:
    """The end of each file's data, and the position of the next file in use.

    Brokers create files ahead; a file is not in use while it begins with zeros.
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
