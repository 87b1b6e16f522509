"""open_table: opens or creates an archive's table of a kind."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from roquet.lake.files.staging import KIND_MARKERS, check_no_parquet_archive
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.objects.object_location import (
    S3,
    ObjectLocation,
    TableLocation,
    is_object_url,
    parse_location,
)
from roquet.lake.table import ArchiveIdentity, ArchiveTable
from roquet.model.errors import ConfigError
from roquet.model.settings import suggest

KINDS: Final = ("delta", "iceberg")
"""Kinds of tables; S3 has both, other object stores Delta tables alone."""


def open_table(
    kind: str,
    target: str,
    wanted: ArchiveIdentity,
    *,
    name: str = "",
    catalog: Mapping[str, str] = {},
    storage: Mapping[str, str] = {},
) -> ArchiveTable:
    """The table of this kind in a directory or an object store, created when there is none.

    An empty kind is that of the table that is there, and delta for a new one. `name` and `catalog`
    are for Iceberg: NAMESPACE.TABLE, and a catalog other than the directory's.
    `storage` are options of the object store.
    Raises ConfigError for wrong arguments and TableConflict when another archive writes to it.
    """
    root = table_location(target, storage)
    check_no_parquet_archive(root)
    kind = kind or present_kind(root, name, catalog)
    check_kind_name(kind)
    if kind != "iceberg" and (name or catalog):
        raise ConfigError(f"a name and a catalog are for Iceberg tables, not for {kind}")
    if kind != "iceberg" and "bucket" in wanted.partition_by.lower():
        raise ConfigError(
            f"--partition-by {wanted.partition_by}: {kind} tables have no buckets; use day or "
            "hour, or --kind iceberg"
        )
    if kind == "delta":
        return DeltaTable(root, wanted)
    check_kind(root, kind)
    return IcebergTable(root, wanted, name=name, catalog=catalog)


def present_kind(root: TableLocation, name: str, catalog: Mapping[str, str]) -> str:
    """The kind of a table that was not said: delta, unless it is Iceberg's by what is known."""
    if name or catalog:
        return "iceberg"
    if isinstance(root, ObjectLocation):
        return "delta"
    return next((kind for kind, mark in KIND_MARKERS.items() if (root / mark).exists()), "delta")


def check_kind_name(kind: str) -> None:
    """Raise ConfigError for a kind of table that does not exist."""
    if kind == "parquet":
        raise ConfigError(
            "no kind of table 'parquet' any more: its readers saw rows twice while files were "
            "merged. Write --kind delta, the default, or iceberg; directories of Parquet files "
            "are read without --kind"
        )
    if kind not in KINDS:
        raise ConfigError(f"no kind of table {kind!r}{suggest(kind, KINDS)}")


def table_location(target: str, storage: Mapping[str, str] = {}) -> TableLocation:
    """The directory or object store of a path or URL; `storage` are the store's options.

    Raises ConfigError for what cannot be used. The environment gives options that are not in
    `storage`.
    """
    if is_object_url(target):
        return parse_location(target, storage, os.environ)
    if storage:
        raise ConfigError(f"storage options are for object stores, and {target} is a directory")
    return directory(target)


def check_kind(location: TableLocation, kind: str) -> None:
    """Raise ConfigError for a kind that cannot lie in an object store."""
    if not isinstance(location, ObjectLocation):
        return
    kinds = KINDS if location.provider is S3 else ("delta",)
    if kind not in kinds:
        raise ConfigError(
            f"{location}: tables in {location.provider.scheme}:// are of kind "
            f"{' or '.join(kinds)}, not {kind}"
        )


def directory(target: str) -> Path:
    """The absolute directory of a path or a file URL; ConfigError for other URLs."""
    if is_object_url(target):
        raise ConfigError(
            f"{target.partition('://')[0]}:// is no directory, and here one is needed that the "
            "driver and all workers see: mount it, or give another place"
        )
    is_url = target.lower().startswith("file:")
    path = Path(url2pathname(urlsplit(target).path)) if is_url else Path(target)
    return path.expanduser().absolute()
