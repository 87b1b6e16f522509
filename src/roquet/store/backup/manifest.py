"""BackupManifest: the files of a backup with their checksums, kept as manifest.json."""

from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from roquet.model.errors import StoreError
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import RealFiles

FILE_NAME: Final = "manifest.json"

DATA_NAME: Final = "data"
"""Directory of a backup that holds the copied files, below their paths in the data directory."""

SIZE_MAX: Final = 2**63 - 1
"""Bytes of a file that an operating system can name."""

FORMAT: Final = 1
"""Version of this format; a manifest of a later one is refused."""


class BackedUpFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup."""

    path: str
    """Relative to the data directory, with slashes."""
    size: int
    """Bytes of the restored file: zeros follow the stored ones."""
    stored: int
    """Bytes in the backup."""
    sha256: str
    """Checksum of the stored bytes, in hexadecimal."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A complete backup: it is written last."""

    format: int = FORMAT
    version: str
    """The version of Roquet that made the backup."""
    made_ms: int
    log_begin: int
    """First position of the log in the backup."""
    log_end: int
    """Position behind the last message in the backup."""
    files: tuple[BackedUpFile, ...]

    @property
    def stored(self) -> int:
        """Bytes of all files in the backup."""
        return sum(file.stored for file in self.files)

    def by_path(self) -> dict[str, BackedUpFile]:
        """The files by their paths."""
        return {file.path: file for file in self.files}


def read_manifest(backup: Path) -> BackupManifest:
    """Read the manifest of a backup. Raises StoreError for a missing, damaged or newer one."""
    path = backup / FILE_NAME
    try:
        data = RealFiles().read(path)
    except FileNotFoundError:
        raise StoreError(f"{backup} is not a backup: there is no {FILE_NAME} in it") from None
    except OSError as error:
        raise store_error(path, error) from error
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found > FORMAT:
            raise StoreError(
                f"{path} has format {found}, and this version of Roquet reads up to {FORMAT}:"
                " restore it with a newer version"
            )
        manifest = msgspec.json.decode(data, type=BackupManifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}): take another backup") from error
    for file in manifest.files:
        if not _is_inside(file):
            raise StoreError(f"{path} is damaged: it names {file.path!r}; take another backup")
    return manifest


class _Format(msgspec.Struct):
    format: int


def _is_inside(file: BackedUpFile) -> bool:
    """Whether a file stays inside the directory that it is restored to, and has a possible size."""
    path = PurePosixPath(file.path)
    is_relative = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    is_plain = "\\" not in file.path and "\0" not in file.path
    return is_relative and is_plain and 0 <= file.stored <= file.size <= SIZE_MAX
