"""Body columns of an Iceberg table: read from its schema, and added to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquet.spark.tables.body_columns import FIELD, BodyField, fields_of, new_fields
from roquet.spark.tables.iceberg.commit_tries import CommitTries

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
                    change.add_column(field.name, _type_of(field), comment)
        except (CommitFailedException, CommitStateUnknownException) as error:
            tries.refused(error)  # another change came first, or only the answer was lost
        table.refresh()


def _type_of(field: BodyField) -> "IcebergType":
    from pyiceberg import types

    known: dict[str, IcebergType] = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
        "date": types.DateType(),
        "timestamp": types.TimestamptzType(),
    }
    return known[field.type]
