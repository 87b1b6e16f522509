"""Job notes: how far the tables of archives are, as their jobs note it beside the data."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a job fills; times are ms since 1970."""

    table: str
    job: str
    topic: str
    commits: int
    """The number of the last commit."""
    committed_ms: int
    looked_ms: int
    """When the job last looked at its topic."""
    lag: int
    """Messages that were not in the table then."""
    lag_s: float
    state: str
    """As `catching up`."""
    overtaken_s: float | None = None
    """Seconds until retention may delete messages that are not in the table; None: unknown."""
    alert: str = ""
    """Sentence about what is wrong and what to do; empty when nothing is."""


JobSource: TypeAlias = Callable[[str], Sequence[JobRow]]
"""Reads the notes of one table, of which several topics may have one; raises RoquetError."""
