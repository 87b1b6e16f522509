"""Process id of this process, without a system call for each look."""

import os
from typing import Final


class CurrentProcess:
    """The process that runs this code; a forked child gets its own id at once."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Read the process id again."""
        self.pid = os.getpid()


CURRENT_PROCESS: Final = CurrentProcess()

if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=CURRENT_PROCESS.note)
