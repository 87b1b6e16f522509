"""Directory locks: one process per data directory; and the errors for failed system calls."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol

from roquet.model.errors import StoreError, StoreFull, StoreLocked
from roquet.store.filesystem.private_files import make_directories, open_regular

_NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_RIGHTS: Final = "; let the user that runs this process read and write it (chown, chmod, chattr)"
_IN_THE_WAY: Final = "; move away what is there, and start again"
_ADVICE: Final = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "; mount its disk for writing",
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENXIO: _IN_THE_WAY,
}
"""Advice to the operator, by errno."""

_held: Final[set[Path]] = set()
"""Lock files that this very process holds: the system's locks exclude only other processes."""


class DirectoryLock(Protocol):
    """A directory held by this process."""

    def release(self) -> None:
        """Let other processes take the directory."""


class FileLock:
    """A lock on the first byte of a file, which Apache's broker takes as well."""

    def __init__(self, path: Path, holder: str) -> None:
        self._path = path.resolve()
        if self._path in _held:
            raise locked_error(path, "this process")
        with store_errors(path):
            make_directories(path.parent)
            self._file = _opened(path)
        try:
            _lock_byte(self._file)
        except OSError:
            self._file.close()
            raise locked_error(path, holder) from None
        if not self._file.read(1):
            self._file.write(b"lock")
            self._file.flush()
        _held.add(self._path)

    def release(self) -> None:
        """Let other processes take the directory."""
        _held.discard(self._path)
        self._file.close()


def locked_error(path: Path, holder: str) -> StoreLocked:
    """The error for a directory that another process holds."""
    return StoreLocked(
        f"{path.parent} is held by {holder}: stop it first, or give another directory"
    )


def store_error(path: Path, error: OSError | ValueError) -> StoreError:
    """The error for a failed system call: StoreFull when there is no space, else StoreError."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return StoreFull(f"{path}: the disk is full; nothing was stored")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    advice = _ADVICE.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return StoreError(f"{path} cannot be used: {reason}{advice}")


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Raise the `store_error` of a path for an OSError."""
    try:
        yield
    except OSError as error:
        raise store_error(path, error) from error


def _opened(path: Path) -> BinaryIO:
    kind: Literal["r+b", "w+b"] = "r+b" if path.exists() else "w+b"
    return open(path, kind, opener=open_regular)


def _lock_byte(file: BinaryIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
