"""Layout of an Iceberg table: its body columns, partition fields and sort order."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from roquet.lake.columns.body_columns import FIELD, BodyField, fields_of, new_fields
from roquet.lake.columns.body_types import arrow_type
from roquet.lake.columns.partition_scheme import HOUR, PartitionScheme, number_within
from roquet.lake.columns.partitioning import check_columns, day_of
from roquet.lake.kinds.iceberg.commits import CommitTries
from roquet.lake.table import ArchiveIdentity, DataFile
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table import Transaction
    from pyiceberg.typedef import Record
    from pyiceberg.types import IcebergType

DAY: Final = "day"

_EPOCH: Final = date(1970, 1, 1)
_HOURS: Final = 24


def set_layout(making: "Transaction", identity: ArchiveIdentity) -> None:
    """Give a new table the partition fields and the sort order of an archive."""
    from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform

    scheme = identity.scheme
    with making.update_spec() as spec:
        if scheme.is_hourly:
            spec.add_field("stored_at", HourTransform(), HOUR)
        else:
            spec.add_field("stored_at", DayTransform(), DAY)
        if scheme.buckets:
            bucket = BucketTransform[str](scheme.buckets)
            spec.add_field(scheme.bucket_column, bucket, scheme.bucket_name)
    if identity.sort_by:
        with making.update_sort_order() as order:
            for name in identity.sort_by:
                order.asc(name, IdentityTransform[Any]())


def partition_fields(identity: ArchiveIdentity) -> list[tuple[str, str]]:
    """The column and the transform of each partition field that `set_layout` makes."""
    scheme = identity.scheme
    fields = [("stored_at", HOUR if scheme.is_hourly else DAY)]
    if scheme.buckets:
        fields.append((scheme.bucket_column, f"bucket[{scheme.buckets}]"))
    return fields


def check_writable(
    table: "IceTable", columns: pa.Schema, fields: Sequence[tuple[str, str]], where: object
) -> None:
    """Raise ConfigError when another writer has changed the columns or the partition fields.

    Files have values for `fields`, which are columns and transforms, and for no others.
    """
    schema = table.schema()
    check_columns(schema.as_arrow(), columns, where)
    found = [
        (schema.find_column_name(field.source_id), str(field.transform))
        for field in table.spec().fields
    ]
    if found != [*fields]:
        names = ", ".join(f"{transform}({column})" for column, transform in fields)
        raise ConfigError(
            f"{where} is not partitioned by {names} any more: another writer changed the table. "
            "Nothing was committed; give it the partition fields that it had, or archive to "
            "another place"
        )


def partition_record(file: DataFile, scheme: PartitionScheme) -> "Record":
    """The values of a file's partition fields, in the order of `set_layout`."""
    from pyiceberg.typedef import Record

    day = day_of(file.day)
    days = None if day is None else (day - _EPOCH).days
    values = [days]
    if scheme.is_hourly:
        hour = number_within(file.partition, HOUR)
        values = [None if days is None or hour is None else days * _HOURS + hour]
    if scheme.buckets:
        values.append(number_within(file.partition, scheme.bucket_name))
    return Record(*values)


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
