"""Machine boot: whether the machine was lost since the last run, and with it the log's tail.

A process that is killed loses nothing that it has appended: the system writes it later. A machine
that loses its power loses what was not flushed. A broker acknowledges what it has appended, so
after that it may lack messages that were acknowledged because of it. The file bootId beside the
store's checkpoint names the boot of the machine in which the store was opened last.
"""

from pathlib import Path
from typing import Final

from roquet.store.filesystem.files import Files

FILE_NAME: Final = "bootId"

ABORT: Final = "abort"
"""File of a store that was not closed."""

UNKNOWN: Final = ""
"""Boot id on systems that do not tell it: after each unclean stop the machine may have been
lost."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def machine_boot_id() -> str:
    """Id of the machine's boot, on Linux; `UNKNOWN` elsewhere."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return UNKNOWN


def note_boot(files: Files, directory: Path, boot_id: str) -> bool:
    """Whether the log has all that was appended before; notes the current boot.

    Call it before the store is opened. Raises StoreError.
    """
    path = directory / FILE_NAME
    try:
        known = files.read(path).decode("ascii", "replace")
    except FileNotFoundError:
        known = UNKNOWN
    was_closed = ABORT not in files.list(directory)
    if known != boot_id:
        files.replace(path, boot_id.encode())
    return was_closed or (known == boot_id != UNKNOWN)
