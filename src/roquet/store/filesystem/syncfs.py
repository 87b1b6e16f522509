"""DiskSync: all that was written to a disk made durable at once, where Linux tells of failures.

Thousands of files, one after the other, cost as many flushes of the disk's own cache, and each time
the lock of Python's threads. All at once cost one. It is done where we know what it does: on file
systems of the kernel's own that lie on a disk, since Linux 5.8, which tells of writes that failed.
Others' files are written as well, and others' failures are told, too: then one asks each file.
"""

import os
import re
from pathlib import Path
from typing import Final

from roquet.store.filesystem import libc

_KNOWN: Final = frozenset({"ext4", "xfs"})
"""Not those that hand on what they hold: overlay, FUSE, network. Btrfs has no number to be known
by."""

_LINUX_MIN: Final = (5, 8)

MOUNTS: Final = Path("/proc/self/mountinfo")


class DiskSync:
    """A disk, watched since this was made."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY)

    def sync(self) -> bool:
        """Make all of it durable; False when some write failed, of whatever file."""
        return libc.sync_disk(self._descriptor)

    def close(self) -> None:
        """Watch no more; again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def find_disk_sync(directory: Path) -> DiskSync | None:
    """The disk that holds a directory; None where it is better not trusted."""
    try:
        if not _is_new_linux() or _kind(directory) not in _KNOWN:
            return None
        return DiskSync(directory)
    except OSError:
        return None


def _is_new_linux() -> bool:
    if not hasattr(os, "uname") or os.uname().sysname != "Linux":
        return False
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= _LINUX_MIN


def _kind(directory: Path) -> str:
    """The file system of a directory and of all in it, as Linux names it; empty for none such.

    proc(5): number, parent, major:minor, root, place, options, others, "-", kind, source, options.
    """
    device = directory.stat().st_dev
    if any(inner.stat().st_dev != device for inner in directory.iterdir()):
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in MOUNTS.read_text(errors="replace").splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-", 6) + 1]
    return ""
