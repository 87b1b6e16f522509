"""A library: processes held to a share of a core by a control group of Linux.

On a small machine one executor of Spark is as fast as all cores allow, so that a second one shows
nothing. Executors of half a core each have room beside the broker and the driver.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PERIOD_US: Final = 20_000
"""Length of the periods in which a share is counted; short, so that it is felt evenly."""
VERSION_1: Final = Path("/sys/fs/cgroup/cpu")
VERSION_2: Final = Path("/sys/fs/cgroup")


def children_named(part: str) -> list[int]:
    """Descendants of this process whose command line has `part`."""
    return [pid for pid in _descendants(os.getpid()) if part in _command(pid)]


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@contextlib.contextmanager
def limited(pids: Iterable[int], cores: float) -> Iterator[bool]:
    """Hold each process, and what it starts later, to so many cores; False where that cannot be."""
    groups = list[Path]()
    try:
        for pid in pids:
            groups.append(_group(f"roquet-bench-{pid}", round(cores * PERIOD_US)))
            (groups[-1] / "cgroup.procs").write_text(str(pid))
        able = True
    except OSError:
        able = False
    try:
        yield able
    finally:
        for group in groups:
            with contextlib.suppress(OSError):  # processes that end a moment later
                group.rmdir()


def _group(name: str, quota_us: int) -> Path:
    if (VERSION_1 / "cpu.cfs_quota_us").exists():
        group = VERSION_1 / name
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        return group
    group = VERSION_2 / name
    group.mkdir()
    (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    return group
