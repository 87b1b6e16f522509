"""The tree of processes on Linux: those below one, and the end of what a killed one leaves."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

LEFT_S_MAX: Final = 15
"""Processes of a killed parent go by themselves; after this they are made to."""


def stat(pid: int) -> list[str]:
    """Name, state, parent and so on of a process; nothing when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return []
    name, _, rest = text.partition("(")[2].rpartition(")")
    return [name, *rest.split()]


def descendants(pid: int) -> list[int]:
    """The processes below one, parents first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := stat(int(entry.name))):
            parents.setdefault(int(fields[2]), []).append(int(entry.name))
    found, unseen = list[int](), [pid]
    while unseen:
        children = parents.get(unseen.pop(), [])
        found += children
        unseen += children
    return found


def end_all(pids: dict[int, str]) -> int:
    """Wait for processes (by id and start time) to end; kill and count those that are left."""
    deadline = time.monotonic() + LEFT_S_MAX
    left = dict(pids)
    while left and time.monotonic() < deadline:
        left = {pid: born for pid, born in left.items() if stat(pid)[19:20] == [born]}
        time.sleep(0.2)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
