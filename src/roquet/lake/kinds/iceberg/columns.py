"""Body columns of an Iceberg table: read from its schema, and added to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from roquet.lake.columns.body_columns import FIELD, BodyField, fields_of, new_fields
from roquet.lake.columns.body_types import arrow_type
from roquet.lake.kinds.iceberg.commit_tries import CommitTries

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.types import IcebergType


def body_fields(table: "IceTable") -> tuple[BodyField, ...]:
    """The body columns of the version that was read last."""
    return fields_of(table.schema().as_arrow())


def add_body_fields(table: "IceTable", fields: Sequence[BodyField], where: str) -> None:
    """Add columns for these fields, unless they are there.

    Raises ConfigError for one that would change its type, TableConflict when other writers are
    always faster.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    tries = CommitTries(where, "no column was added")
    while True:
        added = new_fields(body_fields(table), fields, where)
        if not added:
            return
        try:
            with table.update_schema() as change:
                for field in added:
                    comment = f"{FIELD}={field.field}" if field.field else None
                    change.add_column(field.name, _type_of(arrow_type(field.type)), comment)
        except (CommitFailedException, CommitStateUnknownException) as error:
            tries.refused(error)  # another change came first, or only the answer was lost
        table.refresh()


def _type_of(kind: pa.DataType) -> "IcebergType":
    """The Iceberg type of a body column; the table gives its parts their ids."""
    from pyiceberg import types

    if pa.types.is_list(kind):
        return types.ListType(0, _type_of(kind.value_type), element_required=False)
    if pa.types.is_struct(kind):
        return types.StructType(
            *(types.NestedField(0, part.name, _type_of(part.type), required=False) for part in kind)
        )
    known: dict[pa.DataType, IcebergType] = {
        pa.bool_(): types.BooleanType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.string(): types.StringType(),
        pa.date32(): types.DateType(),
        pa.timestamp("us", "UTC"): types.TimestamptzType(),
    }
    return known[kind]
