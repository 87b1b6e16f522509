"""Syncing a whole disk with one call, where Linux reports failed writes.

Syncing thousands of files one by one costs as many flushes of the disk's cache, and Python's global
lock each time; syncing the disk costs one. It is used only where its behaviour is known: on the
kernel's own file systems that lie on a disk, since Linux 5.8, which reports writes that failed. It
also writes other processes' files and reports their failures; after a failure the caller syncs each
file by itself.
"""

import os
import re
from pathlib import Path
from typing import Final

from roquet.store.filesystem import libc

_KNOWN: Final = frozenset({"ext4", "xfs"})
"""Not overlay, FUSE or network file systems, which hand on what they hold. Btrfs has no device
number to be recognised by."""

_LINUX_MIN: Final = (5, 8)

MOUNTS: Final = Path("/proc/self/mountinfo")


class DiskSync:
    """A disk whose write failures are reported from the creation of this object on."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY)

    def sync(self) -> bool:
        """Make the whole disk durable; False when any write failed, of whatever file."""
        return libc.sync_disk(self._descriptor)

    def close(self) -> None:
        """Stop watching the disk; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def find_disk_sync(directory: Path) -> DiskSync | None:
    """The disk that holds a directory; None where syncfs cannot be trusted."""
    try:
        if not _is_new_linux() or _kind(directory) not in _KNOWN:
            return None
        return DiskSync(directory)
    except OSError:
        return None


def _is_new_linux() -> bool:
    if not hasattr(os, "uname") or os.uname().sysname != "Linux":
        return False
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is not None and (int(version[1]), int(version[2])) >= _LINUX_MIN


def _kind(directory: Path) -> str:
    """The file system type of a directory, as Linux names it; empty if mixed or unknown.

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
