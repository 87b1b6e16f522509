"""EpochFile: the epochs of a replicated log, kept in epochFileCheckpoint and its `.bak`.

Apache's broker copies the file to `.bak` and then overwrites it in place, and never writes an empty
list: a log that was cut to its beginning gets its old epochs back at the next start. Here both have
the same epochs, the copy first: without its last one, bytes that only this broker has would look
like those of the epoch before. An empty list is a file (`0`, `0`), without a `.bak`.

    2               number of entries
    206922483       CRC-32 of the lines below without its sign bit, or 0: not checked
    1-0             epoch, start
    2-1075

Source: Apache RocketMQ 5.5.0, CheckpointFile and EpochFileCache.
"""

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.model.epoch import EpochEntry
from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.files import Files, RealFiles, read_if_exists

UNCHECKED: Final = 0
"""In place of a checksum: believe the lines."""

_EMPTY: Final = b"0\n0\n"

_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_ENTRY: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,19})")


def encode_epoch_file(entries: Sequence[EpochEntry]) -> bytes:
    """Encode the content of the file."""
    lines = "".join(f"{entry.epoch}-{entry.start}\n" for entry in entries).encode("ascii")
    return b"%d\n%d\n%b" % (len(entries), _checksum(lines), lines)


def decode_epoch_file(content: bytes) -> tuple[EpochEntry, ...]:
    """Decode the content of the file.

    Raises FieldError if it is damaged: cut, changed, or with epochs or starts that do not rise.
    """
    head = content.split(b"\n", 2)
    count, checksum = (_number(line) for line in (*head, b"", b"")[:2])
    lines = head[2] if len(head) == 3 else b""
    if content == _EMPTY:
        return ()
    if not lines.endswith(b"\n"):
        raise FieldError("the epoch file is cut")
    if checksum not in (UNCHECKED, _checksum(lines)):
        raise FieldError(f"the epoch file's checksum is {_checksum(lines)}, not {checksum} as said")
    entries = tuple(_entry(line) for line in lines[:-1].split(b"\n"))
    if len(entries) != count:
        raise FieldError(f"the epoch file has {len(entries)} entries, not {count} as said")
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start <= before.start:
            raise FieldError(
                f"epoch {after.epoch} does not follow {before.epoch} in the epoch file"
            )
    return entries


def _checksum(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFF_FFFF


def _number(line: bytes) -> int:
    text = line.decode("latin-1")
    if not _NUMBER.fullmatch(text):
        raise FieldError(f"line {text[:20]!r} of the epoch file is not a number")
    return int(text)


def _entry(line: bytes) -> EpochEntry:
    text = line.decode("latin-1")
    if not (match := _ENTRY.fullmatch(text)):
        raise FieldError(f"line {text[:40]!r} of the epoch file is not `epoch-start`")
    return EpochEntry(int(match[1]), int(match[2]))


log = logger(__name__)

FILE_NAME: Final = "epochFileCheckpoint"


class EpochFile:
    """One epoch file. It is the setting storePathEpochFile, in the store's directory by default."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._files = files or RealFiles()

    def load(self) -> tuple[EpochEntry, ...]:
        """The epochs; none if there is no file. A damaged file is replaced by its `.bak`.

        Raises StoreError if that is damaged or missing, too.
        """
        try:
            found = self._read(self.path)
        except FieldError as error:
            return self._load_backup(error)
        if found is None and (found := self._read_backup()) is not None:
            log.warning("%s is missing: its copy %s is taken", self.path, self._backup)
        return found or ()

    def save(self, entries: Sequence[EpochEntry]) -> None:
        """Replace the epochs and their `.bak`, durably. Raises StoreError."""
        data = encode_epoch_file(entries)
        if entries:
            self._files.replace(self._backup, data)
        self._files.replace(self.path, data)
        if not entries:  # else Apache's broker would take the old ones
            self._files.remove(self._backup)

    def _load_backup(self, damage: FieldError) -> tuple[EpochEntry, ...]:
        found = self._read_backup()
        if found is None:
            raise StoreError(
                f"{self.path} cannot be read ({damage}), nor can its copy {self._backup.name}:"
                " restore one of them; or, to copy the whole log from the master again, remove"
                " the broker's store directory"
            )
        log.warning("%s is damaged (%s): its copy %s is taken", self.path, damage, self._backup)
        return found

    def _read_backup(self) -> tuple[EpochEntry, ...] | None:
        try:
            return self._read(self._backup)
        except FieldError as error:
            log.warning("%s is damaged: %s", self._backup, error)
            return None

    def _read(self, path: Path) -> tuple[EpochEntry, ...] | None:
        data = read_if_exists(self._files, path)
        return None if data is None else decode_epoch_file(data)
