"""Private files: created for their owner only; pipes and devices are not opened as files."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Logs hold other people's messages, and tables their readers: no other user of the machine needs
them."""


def make_directories(path: Path, made: Callable[[Path], object] = lambda _: None) -> None:
    """Create a directory and its parents, all private.

    `Path.mkdir` would apply its mode to the last one only. `made` is called with each directory
    that gained a new name.
    """
    if path.is_dir():
        return
    make_directories(path.parent, made)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    made(path.parent)


def open_private(path: str, flags: int) -> int:
    """Open a path with a private mode if it is created; usable as the `opener` of `open`."""
    return os.open(path, flags, FILE_MODE)


_FLAGS: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""A pipe is opened at once then, whether there is another end or not; files do not care."""

_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a regular file, also behind a link; usable as the `opener` of `open`.

    Raises OSError for anything else.
    """
    try:
        handle = os.open(path, flags | _FLAGS, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise _no_file(path) from error
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise _no_file(path)


def open_unlinked(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a regular file that is no link; links may lead out of a directory."""
    try:
        return open_regular(path, flags | _NO_LINK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise OSError(
                errno.ELOOP, "a link, which is not followed: put the file itself there", str(path)
            ) from error
        raise


def read_unlinked(path: Path) -> bytes:
    """All bytes of a regular file that is no link. Raises OSError."""
    with open(path, "rb", opener=open_unlinked) as file:
        return file.read()


def _no_file(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.ENXIO, "no file, but a pipe, a socket or a device", os.fspath(path))
