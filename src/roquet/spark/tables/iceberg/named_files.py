"""Named files: the data files that any metadata at the place of an Iceberg table names.

A table in an object store has files of killed runs among its own. Its catalog alone does not say
which those are: it may have been restored from a backup, and another catalog may have the table,
too. So every metadata file below the table counts, whoever has written it.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from roquet.model.errors import ConfigError
from roquet.spark.tables.iceberg.expiry import snapshot_files
from roquet.spark.tables.object_location import ObjectLocation
from roquet.spark.tables.object_store import ObjectStore
from roquet.spark.tables.table import TableDamaged

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.metadata import TableMetadata

METADATA: Final = "metadata"
"""The directory of a table's metadata, unless a property says otherwise."""

METADATA_SUFFIX: Final = ".metadata.json"


def named_files(table: "IceTable", home: ObjectLocation) -> set[str]:
    """The URLs of the data files of all versions of a table that lies at `home`.

    Raises ConfigError when its metadata lies elsewhere, TableDamaged for metadata that cannot be
    read.
    """
    table.refresh()
    if not _is_below(table.metadata_location, f"{home}/{METADATA}"):
        raise ConfigError(
            f"the metadata of {home} lies elsewhere, so nothing says which of its files other "
            "catalogs name; no file was removed"
        )
    found = snapshot_files(table, table.snapshots()).data
    for metadata in _newest_metadata(table, home):
        for snapshot in metadata.snapshots:
            if table.snapshot_by_id(snapshot.snapshot_id) is None:
                with suppress(FileNotFoundError):  # expired: its files have been removed
                    found |= snapshot_files(table, [snapshot]).data
    return found


def _newest_metadata(table: "IceTable", home: ObjectLocation) -> "Iterator[TableMetadata]":
    """The metadata files that are not the predecessors of others.

    More than one there is after a run was killed while it committed, and of a second catalog.
    """
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import FromInputFile

    files = [
        file for file in ObjectStore(home).files(METADATA) if file.path.endswith(METADATA_SUFFIX)
    ]
    seen = {_name(table.metadata_location), *_predecessors(table.metadata)}
    for file in sorted(files, key=lambda file: file.modified_ms, reverse=True):
        if _name(file.path) in seen:
            continue
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(home.file(file.path)))
        except (ValidationError, ValueError) as error:
            raise TableDamaged(
                f"{home.file(file.path)} cannot be read, so no file was removed: move it away if "
                "it is not the table's"
            ) from error
        seen |= _predecessors(metadata)
        yield metadata


def _predecessors(metadata: "TableMetadata") -> set[str]:
    return {_name(entry.metadata_file) for entry in metadata.metadata_log}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_below(path: str, directory: str) -> bool:
    return path.replace("s3a://", "s3://", 1).startswith(f"{directory}/")
