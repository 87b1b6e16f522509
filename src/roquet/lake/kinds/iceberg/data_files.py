"""Data files of an Iceberg table: entries of its manifests, with statistics of their columns."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from roquet.lake.columns.column_statistics import unbounded_columns
from roquet.lake.columns.partition_scheme import place_of
from roquet.lake.table import DataFile
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import Record


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
