"""Directory check: examines a whole data directory, its messages and its tables."""

from pathlib import Path

import msgspec

from roquet.broker.tables.table_check import check_tables
from roquet.store.check import StoreReport, check
from roquet.store.config import StoreConfig
from roquet.store.filesystem.files import RealFiles


def check_directory(directory: Path, config: StoreConfig | None = None) -> StoreReport:
    """Examine a directory that no broker uses. Raises StoreError if it is no data directory."""
    report, tables = check(directory, config), check_tables(RealFiles(), directory)
    return msgspec.structs.replace(
        report,
        problems=report.problems + tables.problems,
        pending=report.pending + tables.pending,
    )
