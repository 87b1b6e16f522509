"""Copying: one file copied piece by piece, durably, with its checksum."""

import os
from collections.abc import Iterator
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec

from roquet.store.filesystem.directory_lock import store_errors
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.private_files import (
    make_directories,
    open_private,
    open_regular,
    open_unlinked,
)

PIECE_SIZE: Final = 1024 * 1024
"""Bytes read at a time."""

COMPARED_SIZE: Final = 4096
"""Bytes compared at either end of two files that should be equal, zeros at the end not counted."""


class CopiedBytes(msgspec.Struct, frozen=True):
    """Number and checksum of copied bytes."""

    stored: int
    sha256: str


def copy_file(source: Path, target: Path, end: int, size: int = 0) -> CopiedBytes:
    """Copy the first `end` bytes of a file, fewer if it is shorter.

    The new file is made at least `size` bytes long. Raises FileNotFoundError if there is no source,
    OSError for one that cannot be read or is a link, StoreError if the target cannot be written.
    """
    with open(source, "rb", buffering=0, opener=open_unlinked) as reader:
        digest, stored = sha256(), 0
        with store_errors(target):
            make_directories(target.parent)
            with open(target, "xb", buffering=0, opener=open_private) as writer:
                for piece in _pieces(reader, end):
                    digest.update(piece)
                    _write_all(writer, piece)
                    stored += len(piece)
                writer.truncate(max(stored, size))
                os.fsync(writer.fileno())
                _forget_pages(writer)
    return CopiedBytes(stored, digest.hexdigest())


def write_file(target: Path, data: bytes) -> CopiedBytes:
    """Create a file with these bytes. Raises StoreError."""
    with store_errors(target):
        make_directories(target.parent)
        with open(target, "xb", opener=open_private) as writer:
            writer.write(data)
            writer.flush()
            os.fsync(writer.fileno())
    return CopiedBytes(len(data), sha256(data).hexdigest())


def checksum(path: Path) -> CopiedBytes:
    """The number and checksum of a file's bytes. Raises OSError."""
    digest = sha256()
    with open(path, "rb", buffering=0, opener=open_regular) as reader:
        size = os.fstat(reader.fileno()).st_size
        for piece in _pieces(reader, size):
            digest.update(piece)
    return CopiedBytes(size, digest.hexdigest())


def has_same_ends(path: Path, other: Path, size: int) -> bool:
    """Whether the first and the last bytes of the first `size` ones are equal in both files.

    The last ones are those in front of the zeros at the end: where a large record did not fit, a
    file of the log ends in very many. A file that cannot be read has none.
    """
    try:
        return (
            read_range(path, 0, COMPARED_SIZE) == read_range(other, 0, COMPARED_SIZE)
            and (end := content_end(path, size)) == content_end(other, size)
            and _same_before(path, other, end)
        )
    except OSError:
        return False


def _same_before(path: Path, other: Path, end: int) -> bool:
    start = max(end - COMPARED_SIZE, 0)
    return read_range(path, start, end - start) == read_range(other, start, end - start)


def read_range(path: Path, start: int, size: int) -> bytes:
    """Up to `size` bytes of a file from `start` on. Raises OSError."""
    with open(path, "rb", opener=open_regular) as reader:
        reader.seek(start)
        return reader.read(size)


def content_end(path: Path, size_max: int) -> int:
    """The end of the last byte that is not zero, among the first `size_max` ones.

    Raises OSError.
    """
    with open(path, "rb", buffering=0, opener=open_regular) as reader:
        size = min(size_max, os.fstat(reader.fileno()).st_size)
        end, piece = min(size, RealFiles().data_end(path, size)), COMPARED_SIZE
        while end:
            start = max(end - piece, 0)
            reader.seek(start)
            if content := reader.read(end - start).rstrip(b"\0"):
                return start + len(content)
            end, piece = start, min(2 * piece, PIECE_SIZE)
    return 0


def _pieces(reader: FileIO, end: int) -> Iterator[bytes]:
    reader.seek(0)
    while end > 0 and (piece := reader.read(min(PIECE_SIZE, end))):
        end -= len(piece)
        yield piece


def _write_all(writer: FileIO, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[writer.write(left) :]


def _forget_pages(writer: FileIO) -> None:
    """Let the system forget the copy's pages: they would push out those that a broker reads."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(writer.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
