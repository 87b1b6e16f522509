"""Table notes: how far the tables of archives are, read for the dashboard."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from roquet.net.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from roquet.dashboard.dashboard import JobRow, JobSource

NEEDED: Final = ("numpy", "pyarrow")
"""Packages of the extra `arrow` that read tables in directories and in object stores."""


def table_source() -> "JobSource | None":
    """The function that reads the notes of a table; None when packages for it are missing."""
    return job_rows if all(find_spec(name) for name in NEEDED) else None


def job_rows(table: str) -> "Sequence[JobRow]":
    """The notes beside a table's data, one for each topic. Raises ConfigError when none is there.

    An object store is asked with the credentials of the environment.
    """
    from roquet.dashboard.dashboard import JobRow
    from roquet.lake.lag.table_lag import table_lag
    from roquet.lake.status import read_statuses

    now_ms = SYSTEM_CLOCK.now_ms()
    lags = [table_lag(table, status, now_ms) for status in read_statuses(table)]
    return [
        JobRow(
            table=lag.table,
            job=lag.job,
            topic=lag.topic,
            commits=lag.number,
            committed_ms=lag.committed_ms,
            looked_ms=lag.at_ms,
            lag=lag.lag,
            lag_s=lag.lag_s,
            state=lag.state.words,
            overtaken_s=lag.overtaken_s,
            alert=lag.alert,
        )
        for lag in lags
    ]
