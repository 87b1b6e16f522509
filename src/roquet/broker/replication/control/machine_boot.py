"""Machine boot: whether the machine was lost since the last run, and with it the log's tail.

A process that is killed loses nothing that it has appended: the system writes it later. A machine
that loses its power loses what was not flushed. A broker acknowledges what it has appended, so
after that it may lack messages that were acknowledged because of it. The file bootId beside the
store's checkpoint names the boot of the machine in which the log was whole. A broker that lacks a
part notes that instead, so that neither a kill nor a stop makes it forget.
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

LACKING: Final = "log lacks a part"
"""Content of the file in place of a boot id, until the log has all again."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def machine_boot_id() -> str:
    """Id of the machine's boot, on Linux; `UNKNOWN` elsewhere."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return UNKNOWN


def note_boot(
    files: Files,
    directory: Path,
    boot_id: str,
    *,
    is_flushed: bool = False,
    is_trusted: bool = False,
) -> bool:
    """Whether the log has all that was appended before; notes that, or the current boot.

    With `is_flushed` everything that was acknowledged is on the disk; a log that is trusted counts
    as whole whatever was noted. Call it before the store is opened. Raises StoreError.
    """
    try:
        known = files.read(directory / FILE_NAME).decode("ascii", "replace")
    except FileNotFoundError:
        known = UNKNOWN
    was_closed = ABORT not in files.list(directory)
    has_lost_nothing = was_closed or known == boot_id != UNKNOWN or is_flushed
    is_whole = is_trusted or (known != LACKING and has_lost_nothing)
    if (noted := boot_id if is_whole else LACKING) != known:
        files.replace(directory / FILE_NAME, noted.encode())
    return is_whole


def note_whole(files: Files, directory: Path, boot_id: str) -> None:
    """Note that the log has all again. Raises StoreError."""
    files.replace(directory / FILE_NAME, boot_id.encode())
