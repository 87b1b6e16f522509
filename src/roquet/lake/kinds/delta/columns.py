"""Delta columns: the schema of an archive's Delta table, and body columns that are added to it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from roquet.lake.columns.body_columns import (
    BodyField,
    body_schema,
    fields_of,
    file_schema,
    new_fields,
)
from roquet.lake.columns.column_statistics import STATISTICS_COLUMNS
from roquet.lake.columns.partition_scheme import HOUR
from roquet.lake.columns.partitioning import check_columns
from roquet.lake.files.output_files import PREFIX
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.table import ArchiveIdentity, TableConflict
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log

CONSTRAINT: Final = "delta.constraints."
"""The beginning of the keys of a table's constraints in its configuration."""

FORGETTING: Final = "delta.setTransactionRetentionDuration"
"""Property of a table whose application transactions, such as our offsets, do not stay for ever.
deltalake keeps them; Spark's Delta leaves them out of its checkpoints."""

STATISTICS: Final = "delta.dataSkippingStatsColumns"
"""Property of a table with the columns that its files have statistics of.

deltalake expects those of all columns where nothing is said, and finds no row by one without: in
old files, by every column that was added later."""

TRIES: Final = 20
"""Attempts to change columns or properties while other writers add their entries."""


def table_schema(identity: ArchiveIdentity) -> pa.Schema:
    """The schema of a new table, whose partitions are columns, too."""
    schema = file_schema(identity.columns, () if identity.body_format else None)
    schema = schema.append(pa.field("day", pa.date32()))
    return schema.append(pa.field(HOUR, pa.int32())) if identity.scheme.is_hourly else schema


def partition_columns(identity: ArchiveIdentity) -> list[str]:
    """The names of the partition columns."""
    return ["day", HOUR] if identity.scheme.is_hourly else ["day"]


def statistics_columns(identity: ArchiveIdentity) -> list[str]:
    """The columns of which each file has statistics."""
    return [name for name in STATISTICS_COLUMNS if name in identity.columns]


def statistics_property(identity: ArchiveIdentity) -> Mapping[str, str]:
    """The property that names the columns with statistics."""
    return {STATISTICS: ",".join(statistics_columns(identity))}


def declare_statistics(log: "Log", identity: ArchiveIdentity) -> None:
    """Name the columns with statistics in a table of an earlier Roquet.

    The table stays as it is when it cannot be changed, or when other writers are always faster.
    """
    from deltalake.exceptions import CommitFailedError

    for _ in range(TRIES):
        if STATISTICS in log.metadata().configuration:
            return
        try:
            log.alter.set_table_properties(dict(statistics_property(identity)))
        except CommitFailedError:  # another entry came first
            log.update_incremental()


def check_writable(
    log: "Log", schema: pa.Schema, partitions: Sequence[str], where: TableLocation
) -> None:
    """Raise ConfigError when files with these columns cannot be added to the version read last.

    Another writer may have changed the columns or the partitions, or have added a constraint, which
    deltalake does not check for files that are written by others. It may also let offsets expire.
    """
    check_columns(pa.schema(log.schema().to_arrow()), schema, where)
    metadata = log.metadata()
    if metadata.partition_columns != [*partitions]:
        raise ConfigError(
            f"{where} is partitioned by {', '.join(metadata.partition_columns) or 'nothing'} and "
            f"not by {', '.join(partitions)}: another writer changed the table. Nothing was "
            "committed; archive to another place"
        )
    names = sorted(key for key in metadata.configuration if key.startswith(CONSTRAINT))
    if names:
        raise ConfigError(
            f"{where} has the constraint {names[0].removeprefix(CONSTRAINT)!r}, which the rows of "
            "messages are not checked for: drop it, or archive to another place"
        )
    if FORGETTING in metadata.configuration:
        raise ConfigError(
            f"{where} lets offsets of archives expire ({FORGETTING}), and all messages would be "
            "archived again: remove the property"
        )


def check_no_files(paths: Iterable[str], where: TableLocation) -> None:
    """Raise ConfigError when a table without a commit has files of an archive: offsets are lost.

    Clones of other engines have the files and the description of a table, but not its offsets.
    """
    if any(path.rpartition("/")[2].startswith(PREFIX) for path in paths):
        raise ConfigError(
            f"{where} has files of an archive, and not the offsets at which they end: it is a "
            "clone of one, or another engine has removed them. Nothing was archived, since all "
            "messages would be there twice; archive to another place"
        )


def check_removal(log: "Log", where: TableLocation) -> None:
    """Raise ConfigError for a table of which no row may be removed or replaced."""
    if log.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise ConfigError(
            f"{where} is append-only (delta.appendOnly), so none of its rows may be removed or "
            "replaced; nothing was committed. Set the property to false"
        )


def body_fields(log: "Log", own_columns: Collection[str] = ()) -> tuple[BodyField, ...]:
    """The body columns of the version that was read last, without `own_columns`."""
    return fields_of(pa.schema(log.schema().to_arrow()), own_columns)


def add_body_fields(
    log: "Log",
    fields: Sequence[BodyField],
    where: TableLocation,
    own_columns: Collection[str] = (),
) -> None:
    """Add columns for these fields, unless they are there.

    Raises ConfigError for one that would change its type, TableConflict when other writers are
    always faster.
    """
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError

    for _ in range(TRIES):
        added = new_fields(body_fields(log, own_columns), fields, where)
        if not added:
            return
        [error, *kinds] = body_schema(added)
        named = [
            kind.with_metadata(field.metadata) for field, kind in zip(added, kinds, strict=True)
        ]
        [_, *columns] = Schema.from_arrow(pa.schema([error, *named])).fields
        try:
            log.alter.add_columns(columns)
        except CommitFailedError:  # another entry came first
            log.update_incremental()
    raise TableConflict(
        f"other writers changed {where} {TRIES} times in a row; no column was added"
    )
