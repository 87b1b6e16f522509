"""Layout of an Iceberg table: columns, partition fields, sort order, and files in its manifests."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from roquet.lake.columns.body_columns import FIELD, BodyField, fields_of, new_fields
from roquet.lake.columns.body_types import arrow_type
from roquet.lake.columns.column_statistics import unbounded_columns
from roquet.lake.columns.partition_scheme import HOUR, PartitionScheme, number_within, place_of
from roquet.lake.columns.partitioning import check_columns, day_of
from roquet.lake.kinds.iceberg.commits import CommitTries
from roquet.lake.table import ArchiveIdentity, DataFile
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.snapshots import Snapshot
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


def body_fields(table: "IceTable", own_columns: Collection[str] = ()) -> tuple[BodyField, ...]:
    """The body columns of the version that was read last, without `own_columns`."""
    return fields_of(table.schema().as_arrow(), own_columns)


def add_body_fields(
    table: "IceTable", fields: Sequence[BodyField], where: str, own_columns: Collection[str] = ()
) -> None:
    """Add columns for these fields, unless they are there.

    Raises ConfigError for one that would change its type, TableConflict when other writers are
    always faster.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    tries = CommitTries(where, "no column was added")
    while True:
        added = new_fields(body_fields(table, own_columns), fields, where)
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


def entries_of(table: "IceTable", snapshot: "Snapshot | None") -> "Iterator[Entry]":
    """The data files of a snapshot; none without a snapshot."""
    from pyiceberg.manifest import ManifestContent

    if snapshot is not None:
        for manifest in snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DATA:
                for entry in manifest.fetch_manifest_entry(table.io):
                    yield entry.data_file


def plain_paths(table: "IceTable", where: object) -> list[str]:
    """The paths of the current data files; ConfigError when delete files are about their rows."""
    try:
        tasks = list(table.scan().plan_files())
    except (NotImplementedError, ValueError):  # equality deletes, which pyiceberg does not read
        check_no_deletes(table, where)
        raise
    if any(task.delete_files for task in tasks):
        check_no_deletes(table, where)
    return [task.file.file_path for task in tasks]


def check_no_deletes(table: "IceTable", where: object) -> None:
    """Raise ConfigError while the current snapshot has delete files.

    They say which rows of data files were deleted. A data file that is merged or replaced is
    another file, whose rows they would no longer delete.
    """
    from pyiceberg.manifest import ManifestContent

    snapshot = table.current_snapshot()
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DELETES and (
            manifest.has_added_files() or manifest.has_existing_files()
        ):
            raise ConfigError(
                f"{where} has delete files, so its data files hold rows that another writer "
                "deleted, and no file is read, merged or replaced: write them anew "
                "(rewrite_data_files with delete-file-threshold=1), and start again"
            )


def described(
    table: "IceTable", files: Iterable[DataFile], record: "Callable[[DataFile], Record]"
) -> "Iterator[Entry]":
    """New files as manifest entries, with the statistics of their footers.

    `record` gives the partition of a file: no statistics tell a bucket, as pyiceberg's own
    `add_files` would need. A column has bounds if all row groups say them: pyiceberg would take
    those of the others for the whole file's.
    """
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.manifest import DataFileContent, FileFormat

    where, schema = table.location().rstrip("/"), table.schema()
    ids = parquet_path_to_id_mapping(schema)
    for file in files:
        path = f"{where}/data/{file.path}"
        with table.io.new_input(path).open() as stream:
            footer = pq.read_metadata(stream)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, table.properties),
            parquet_column_mapping=ids,
        )
        for name in unbounded_columns(footer):
            statistics.column_aggregates.pop(ids[name], None)
        yield Entry.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=record(file),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def file_of(entry: "Entry") -> DataFile:
    """The file of a manifest entry."""
    (day, within), name = place_of(entry.file_path)
    return DataFile(
        name=name, day=day, within=within, rows=entry.record_count, size=entry.file_size_in_bytes
    )
