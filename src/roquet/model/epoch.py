"""EpochEntry: a term of one master, and the log position at which it began."""

import msgspec


class EpochEntry(msgspec.Struct, frozen=True):
    """One epoch of a replicated log: it ends where the next one starts, the last one never.

    Logs that agree in an entry are equal up to the smaller of its two ends (Java's EpochEntry).
    """

    epoch: int
    """Number of the election; a later master has a larger one."""
    start: int
    """Position of its first byte."""
