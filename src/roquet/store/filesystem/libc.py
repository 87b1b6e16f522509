"""Calls into the C library that Python lacks: maps without descriptors, malloc limits, syncfs.

Maps: a process may hold some 65,000 of them, but often only 1,024 descriptors. Python's own maps
keep one descriptor each; from 3.13 on they can be told not to. Before that, on Linux, Python
reserves the memory and the file is mapped over it. Views keep Python's object alive, and that
object unmaps the reserved range when the last view is gone, whatever is mapped there.
"""

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
"""Linux's values on every processor known to run Python; the module mmap lacks them."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""`mallopt` parameters: the free memory above which some is returned to the system, and the size
from which an allocation gets a mapping of its own."""

TRACKFD_OPTION: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""The argument that makes Python's mmap keep no descriptor; empty before 3.13."""

Function = Callable[..., int | None]


class _Library:
    """Functions of the C library. `mmap` holds Python's global lock, `syncfs` releases it."""

    def __init__(self) -> None:
        with_gil, without_gil = (
            ctypes.PyDLL(None, use_errno=True),
            ctypes.CDLL(None, use_errno=True),
        )
        pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self.mmap = _function(
            with_gil.mmap, pointer, pointer, size, number, number, number, ctypes.c_long
        )
        self.syncfs = _function(without_gil.syncfs, number, number)
        # musl has none and returns memory in its own way.
        mallopt = getattr(without_gil, "mallopt", None)
        self.mallopt = _function(mallopt, number, number, number) if mallopt else None


def _function(symbol: Any, result: Any, *arguments: Any) -> Function:
    symbol.restype, symbol.argtypes = result, arguments
    function: Function = symbol
    return function


def open_library() -> _Library | None:
    """The C library, where its layout is known (64-bit Linux); None elsewhere."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None
    try:
        return _Library()
    except (OSError, AttributeError):
        return None


LIBRARY: Final = open_library()
"""The C library of this process, opened once; None where Python's own maps are used."""


def maps_keep_descriptors() -> bool:
    """Whether each map holds a descriptor for as long as it exists."""
    return not TRACKFD_OPTION and LIBRARY is None


def map_file(descriptor: int, size: int, *, writable: bool) -> memoryview:
    """Map the first bytes of an open file; the descriptor may be closed afterwards.

    Raises OSError, and ValueError for a file that is shorter.
    """
    if not TRACKFD_OPTION and LIBRARY is not None and os.fstat(descriptor).st_size >= size:
        return _map_over_reserved(LIBRARY, descriptor, size, writable=writable)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    return memoryview(mmap.mmap(descriptor, size, access=access, **TRACKFD_OPTION))


def _map_over_reserved(
    library: _Library, descriptor: int, size: int, *, writable: bool
) -> memoryview:
    """Map a file over memory that Python has reserved."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = mmap.MAP_SHARED | _MAP_FIXED
    if library.mmap(address, size, protection, flags, descriptor, 0) != address:
        number = ctypes.get_errno()
        memory.close()
        raise OSError(number, os.strerror(number))
    view = memoryview(memory)
    return view if writable else view.toreadonly()


def keep_memory(size: int) -> None:
    """Let the process keep up to `size` bytes of freed memory instead of returning them.

    Memory returned at the end of a large request faults in again, page by page, with the next one.
    """
    if LIBRARY is not None and LIBRARY.mallopt is not None:
        LIBRARY.mallopt(_TRIM_THRESHOLD, size)
        LIBRARY.mallopt(_MMAP_THRESHOLD, size)


def sync_disk(descriptor: int) -> bool:
    """Make the whole file system of an open directory durable (syncfs); False if that failed.

    Since Linux 5.8, syncfs reports writes that failed since the directory was opened, or shortly
    before.
    """
    return LIBRARY is not None and LIBRARY.syncfs(descriptor) == 0


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
        return sync_disk(self._descriptor)

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
