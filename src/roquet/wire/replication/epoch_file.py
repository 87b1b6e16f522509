"""Epoch file: epochFileCheckpoint, the epochs of a replicated log as text.

    2               number of entries
    206922483       CRC-32 of the lines below without its sign bit, or 0: not checked
    1-0             epoch, start
    2-1075

Source: Apache RocketMQ 5.5.0, CheckpointFile and EpochFileCache. Apache's broker never writes an
empty list, but reads one: two lines of 0. A file without these lines is damaged.
"""

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from roquet.model.epoch import EpochEntry
from roquet.model.errors import FieldError

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
