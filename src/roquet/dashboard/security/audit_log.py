"""AuditLog: who changed what, when, from where, and how it ended."""

from collections.abc import Mapping, Sequence
from enum import Enum
from io import SEEK_END, FileIO
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import ConfigError, RoquetError
from roquet.store.filesystem.private_files import open_private

ENTRIES_MAX: Final = 1_000
"""Changes that memory holds, the newest; the file holds all."""

VALUE_MAX: Final = 500
"""Characters of one text that are written; the rest is cut."""


class AuditOutcome(Enum):
    """End of a change."""

    BEGUN = "begun"
    """Not ended yet, or the dashboard was killed meanwhile."""
    DONE = "done"
    REFUSED = "refused"
    """By the dashboard or by the cluster; nothing or a part of it was done, as the detail says."""
    UNKNOWN = "unknown"
    """No answer came in time, or the visitor went away."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change that somebody asked for."""

    number: int
    """Counts from the start of the dashboard."""
    at_ms: int
    user: str | None
    """None: visitors do not log in."""
    address: str
    """IP address of the browser, or of the proxy before the dashboard."""
    action: str
    details: Mapping[str, str]
    """Fields of the form and of the address, without secrets."""
    outcome: AuditOutcome
    text: str = ""
    """Error of a change that was refused."""


class AuditLog:
    """Changes, the newest in memory and all in a file of JSON lines.

    Each change is written before it is made and once more when it has ended.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file for appending; ConfigError when that is not possible."""
        self._entries: dict[int, AuditEntry] = {}
        self._next = 1
        try:
            self._file = _open(path) if path else None
        except OSError as error:
            raise ConfigError(f"audit file {path}: {error.strerror}") from None

    @property
    def entries(self) -> Sequence[AuditEntry]:
        """Changes in memory, the newest first, each as far as it is known."""
        return [self._entries[number] for number in sorted(self._entries, reverse=True)]

    def begin(
        self, *, at_ms: int, user: str | None, address: str, action: str, details: Mapping[str, str]
    ) -> AuditEntry:
        """Write that a change begins. Raises RoquetError when the file cannot be written."""
        entry = AuditEntry(
            number=self._next,
            at_ms=at_ms,
            user=None if user is None else user[:VALUE_MAX],
            address=address,
            action=action,
            details={name[:VALUE_MAX]: value[:VALUE_MAX] for name, value in details.items()},
            outcome=AuditOutcome.BEGUN,
        )
        self._next += 1
        self._write(entry)
        return entry

    def end(self, entry: AuditEntry, outcome: AuditOutcome, text: str = "") -> None:
        """Write how a change ended. Raises RoquetError when the file cannot be written."""
        self._write(msgspec.structs.replace(entry, outcome=outcome, text=text[:VALUE_MAX]))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, entry: AuditEntry) -> None:
        if self._file is not None:
            line = msgspec.json.encode(entry) + b"\n"
            try:
                while line:  # a disk that fills up takes a part, and refuses the rest
                    line = line[self._file.write(line) or 0 :]
            except OSError as error:
                raise RoquetError(f"the audit log cannot be written: {error.strerror}") from None
        self._entries[entry.number] = entry
        if len(self._entries) > ENTRIES_MAX:
            del self._entries[min(self._entries)]


def _open(path: Path) -> FileIO:
    """The file for appending; a new one is its owner's alone, since it names users and topics.

    A line that was cut, by a kill or a full disk, is ended: the next one begins on its own.
    """
    file = FileIO(str(path), "a", opener=open_private)
    if path.is_file() and path.stat().st_size:  # and no pipe
        with path.open("rb") as written:
            written.seek(-1, SEEK_END)
            if written.read() != b"\n":
                file.write(b"\n")
    return file
