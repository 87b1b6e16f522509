"""open_table: opens or creates an archive's table of a kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from roquet.model.errors import ConfigError
from roquet.model.settings import suggest
from roquet.spark.tables.table import ArchiveIdentity, ArchiveTable

KINDS: Final = ("parquet", "delta", "iceberg")


def open_table(
    kind: str,
    target: str,
    wanted: ArchiveIdentity,
    *,
    name: str = "",
    catalog: Mapping[str, str] = {},
) -> ArchiveTable:
    """The table of this kind in a directory, created when there is none.

    `name` and `catalog` are for Iceberg: NAMESPACE.TABLE, and a catalog other than the directory's.
    Raises ConfigError for wrong arguments and TableConflict when another archive writes to it.
    """
    if kind not in KINDS:
        raise ConfigError(f"no kind of table {kind!r}{suggest(kind, KINDS)}")
    if kind != "iceberg" and (name or catalog):
        raise ConfigError(f"a name and a catalog are for Iceberg tables, not for {kind}")
    root = directory(target)
    # Each imports what it needs: deltalake and pyiceberg are extras.
    if kind == "parquet":
        from roquet.spark.tables.parquet import ParquetTable

        return ParquetTable(root, wanted)
    if kind == "delta":
        from roquet.spark.tables.delta import DeltaTable

        return DeltaTable(root, wanted)
    from roquet.spark.tables.iceberg import IcebergTable

    return IcebergTable(root, wanted, name=name, catalog=catalog)


def directory(target: str) -> Path:
    """The absolute directory of a path or a file URL; ConfigError for other URLs."""
    parts = urlsplit(target)
    if len(parts.scheme) > 1 and parts.scheme != "file":  # one letter is a Windows drive
        raise ConfigError(
            f"{target}: an archive needs a directory that the driver and all workers see; "
            f"{parts.scheme} is none. Mount it, or archive to a directory and copy that"
        )
    path = Path(url2pathname(parts.path)) if parts.scheme == "file" else Path(target)
    return path.expanduser().absolute()
