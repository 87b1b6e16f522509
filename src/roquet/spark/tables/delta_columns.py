"""Delta columns: the schema of an archive's Delta table, and body columns that are added to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from roquet.spark.tables.body_columns import (
    BodyField,
    body_schema,
    fields_of,
    file_schema,
    new_fields,
)
from roquet.spark.tables.object_location import TableLocation
from roquet.spark.tables.partition_scheme import HOUR
from roquet.spark.tables.table import ArchiveIdentity, TableConflict

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log

TRIES: Final = 20
"""Attempts to add columns while other writers add their entries."""


def table_schema(identity: ArchiveIdentity) -> pa.Schema:
    """The schema of a new table, whose partitions are columns, too."""
    schema = file_schema(identity.columns, () if identity.body_format else None)
    schema = schema.append(pa.field("day", pa.date32()))
    return schema.append(pa.field(HOUR, pa.int32())) if identity.scheme.is_hourly else schema


def partition_columns(identity: ArchiveIdentity) -> list[str]:
    """The names of the partition columns."""
    return ["day", HOUR] if identity.scheme.is_hourly else ["day"]


def body_fields(log: "Log") -> tuple[BodyField, ...]:
    """The body columns of the version that was read last."""
    return fields_of(pa.schema(log.schema().to_arrow()))


def add_body_fields(log: "Log", fields: Sequence[BodyField], where: TableLocation) -> None:
    """Add columns for these fields, unless they are there.

    Raises ConfigError for one that would change its type, TableConflict when other writers are
    always faster.
    """
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError

    for _ in range(TRIES):
        added = new_fields(body_fields(log), fields, where)
        if not added:
            return
        [_, *columns] = Schema.from_arrow(body_schema(added)).fields
        try:
            log.alter.add_columns(columns)
        except CommitFailedError:  # another entry came first
            log.update_incremental()
    raise TableConflict(
        f"other writers changed {where} {TRIES} times in a row; no column was added"
    )
