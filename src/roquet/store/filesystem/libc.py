"""What Python does not offer of the C library: maps without descriptors, memory, whole disks.

Maps: a process may have some 65,000 of them, but often only 1,024 descriptors, of which Python's
own maps keep one each; from 3.13 on they can be told not to. Before that, on Linux, we let Python
reserve the memory and put the file there: whoever looks at it holds Python's object, which unmaps
what it reserved when nobody looks any more, whatever lies there.
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
"""Linux's numbers on all processors that we know to run Python; the module mmap lacks them."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""What `mallopt` calls the free memory at which some is given back, and the size of a piece that
is asked for, and given back, by itself."""

_TRACKS: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""How Python is told to keep no descriptor."""

Function = Callable[..., int | None]


class _Library:
    """The C library's functions. `mmap` keeps the lock of Python's threads, `syncfs` does not."""

    def __init__(self) -> None:
        kept, freed = ctypes.PyDLL(None, use_errno=True), ctypes.CDLL(None, use_errno=True)
        pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self.mmap = _function(
            kept.mmap, pointer, pointer, size, number, number, number, ctypes.c_long
        )
        self.syncfs = _function(freed.syncfs, number, number)
        # musl has none, and gives memory back in its own way.
        found = getattr(freed, "mallopt", None)
        self.mallopt = _function(found, number, number, number) if found else None


def _function(found: Any, result: Any, *arguments: Any) -> Function:
    found.restype, found.argtypes = result, arguments
    function: Function = found
    return function


def _library() -> _Library | None:
    """The library, where it is known to be as we think."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None
    try:
        return _Library()
    except (OSError, AttributeError):
        return None


_LIBRARY: Final = _library()


def maps_keep_descriptors() -> bool:
    """Whether each map costs a descriptor as long as it is there."""
    return not _TRACKS and _LIBRARY is None


def map_file(descriptor: int, size: int, *, writable: bool) -> memoryview:
    """The first bytes of an open file as memory; the descriptor may be closed afterwards.

    Raises OSError, and ValueError for a file that is shorter.
    """
    if not _TRACKS and _LIBRARY is not None and os.fstat(descriptor).st_size >= size:
        return _placed(_LIBRARY, descriptor, size, writable=writable)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    return memoryview(mmap.mmap(descriptor, size, access=access, **_TRACKS))


def _placed(library: _Library, descriptor: int, size: int, *, writable: bool) -> memoryview:
    """Memory that Python has reserved, with the file in it."""
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
    """Let the process keep so many bytes that it does not use at the moment.

    What is given back at the end of a large request comes again, page by page, with the next one.
    """
    if _LIBRARY is not None and _LIBRARY.mallopt is not None:
        _LIBRARY.mallopt(_TRIM_THRESHOLD, size)
        _LIBRARY.mallopt(_MMAP_THRESHOLD, size)


def sync_disk(descriptor: int) -> bool:
    """Make all of the disk durable that holds an open directory; False where that failed.

    Of writes that failed since the directory was opened, or not long before, Linux 5.8 tells.
    """
    return _LIBRARY is not None and _LIBRARY.syncfs(descriptor) == 0
