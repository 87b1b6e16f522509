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
    """Hold each process, and what it starts later, to so many cores.

    False where that cannot be; then none of them is held.
    """
    groups = list[Path]()
    try:
        for pid in pids:
            groups.append(_root() / f"roquet-bench-{pid}")
            _hold(pid, groups[-1], round(cores * PERIOD_US))
        able = True
    except OSError:
        _release(groups)
        able = False
    try:
        yield able
    finally:
        _release(groups)


def _root() -> Path:
    return VERSION_1 if (VERSION_1 / "cpu.cfs_quota_us").exists() else VERSION_2


def _hold(pid: int, group: Path, quota_us: int) -> None:
    """Move a process to a new group with a limit."""
    group.mkdir()
    if group.parent == VERSION_1:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    else:
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    (group / "cgroup.procs").write_text(str(pid))


def _release(groups: Iterable[Path]) -> None:
    """Move what still runs in the groups to their parent, and remove them."""
    for group in groups:
        with contextlib.suppress(OSError):  # not made, or removed before
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    (group.parent / "cgroup.procs").write_text(pid)
            group.rmdir()
