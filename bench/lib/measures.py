"""Measures of processes, from /proc: Linux only."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The value below which so many percent of the values are; `ordered` ascends.

    Raises IndexError without values.
    """
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(match[1]) / 1024 if match else 0.0
