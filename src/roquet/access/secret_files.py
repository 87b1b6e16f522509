"""Secret files: a warning about files with passwords that other users of the machine can read."""

import os
import stat
from pathlib import Path
from typing import Final

from roquet.log_records import logger

log = logger(__name__)

_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


def is_readable_by_others(path: Path) -> bool:
    """Whether a file's mode lets its group or everybody read it; False where modes mean nothing."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & _OTHERS)
    except OSError:
        return False


def warn_of_readers(path: Path) -> None:
    """Warn of a file that others can read."""
    if is_readable_by_others(path):
        log.warning("%s holds passwords, and other users can read it: chmod 600 %s", path, path)
