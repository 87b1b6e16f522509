"""Named files: the data files that any metadata at the place of an Iceberg table names.

A table in an object store has files of killed runs among its own. Its catalog alone does not say
which those are: it may have been restored from a backup, and another catalog may have the table,
too, perhaps at a version that is past here. So every metadata file below the table counts, whoever
has written it.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from roquet.lake.kinds.iceberg.expiry import snapshot_files
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.table import TableDamaged
from roquet.model.errors import ConfigError

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
    known = {snapshot.manifest_list for snapshot in table.snapshots()}
    for metadata in _other_metadata(table, home):
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list not in known:
                known.add(snapshot.manifest_list)
                with suppress(FileNotFoundError):  # expired: its files have been removed
                    found |= snapshot_files(table, [snapshot]).data
    return found


def _other_metadata(table: "IceTable", home: ObjectLocation) -> "Iterator[TableMetadata]":
    """All metadata files but the table's newest one.

    They are its predecessors, a hundred at most as archives set it, what a run wrote that was
    killed while it committed, and those of a second catalog.
    """
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import FromInputFile

    newest = _name(table.metadata_location)
    for file in ObjectStore(home).files(METADATA):
        if not file.path.endswith(METADATA_SUFFIX) or _name(file.path) == newest:
            continue
        try:
            yield FromInputFile.table_metadata(table.io.new_input(home.file(file.path)))
        except FileNotFoundError:  # a commit has removed the oldest one meanwhile
            continue
        except (ValidationError, ValueError) as error:
            raise TableDamaged(
                f"{home.file(file.path)} cannot be read, so no file was removed: move it away if "
                "it is not the table's"
            ) from error


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_below(path: str, directory: str) -> bool:
    return path.replace("s3a://", "s3://", 1).startswith(f"{directory}/")
