"""Arrow dataset: an archive, or another table of Parquet files, as engines in this process read it.

No Spark and no Java: what a reader selects and filters is read from the files by pyarrow alone.
"""

import os
from collections.abc import Mapping
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from roquet.lake.columns.column_statistics import STATISTICS_COLUMNS
from roquet.lake.kinds.delta.storage import LOG, opened_log
from roquet.lake.kinds.iceberg.catalog import location_in_catalog
from roquet.lake.objects.object_location import (
    ObjectLocation,
    TableLocation,
    is_object_url,
    storage_of,
    storage_options,
)
from roquet.lake.objects.object_store import ObjectStore, dataset_source
from roquet.lake.open_table import table_location
from roquet.lake.snapshot import TableSnapshot, kind_of, read_snapshot
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log

_MS_US: Final = 1000


def arrow_dataset(
    target: str, storage: Mapping[str, str] = {}, catalog: Mapping[str, str] = {}
) -> ds.Dataset:
    """The rows of a table at this moment; `storage` are the options of its object store.

    With an Iceberg `catalog` the target may be the name NAMESPACE.NAME of one of its tables, and a
    location that has neither a Delta log nor a catalog of its own is that of one. Raises
    ConfigError when there is no table, or one that holds no file yet.
    """
    name = target if catalog and _is_name(target) else ""
    if name:
        target = location_in_catalog(name, catalog, storage_options(storage, os.environ))
    if not is_object_url(target):
        storage = {}
    root = table_location(target, storage)
    kind = kind_of(root)
    if isinstance(root, ObjectLocation):
        ObjectStore(root).check_bucket()
        if not ObjectStore(root).has_directory(LOG):
            if not catalog:
                raise ConfigError(
                    f"{root} is no delta table: it has no {LOG}. An Iceberg table is found by its "
                    "catalog: --catalog https://CATALOG, glue, or a name in .pyiceberg.yaml"
                )
            kind = "iceberg"
    # A snapshot would read every entry of a Delta log for its offsets.
    if kind == "delta":
        return _delta(root)
    known = {} if (kind == "iceberg" and isinstance(root, Path) and not name) else catalog
    snapshot = read_snapshot(target, name=name, catalog=known, storage=storage)
    if not snapshot.paths:
        raise ConfigError(f"{target} has no rows yet: archive something first")
    return _files(snapshot, root)


def _is_name(target: str) -> bool:
    """Whether a text is NAMESPACE.NAME rather than a location."""
    return "." in target and "/" not in target and not Path(target).exists()


def _delta(root: TableLocation) -> ds.Dataset:
    """A Delta table by its own library: it knows partitions, and refuses what it cannot read."""
    with opened_log(root) as log:
        from deltalake.exceptions import DeltaProtocolError

        try:
            found = log.to_pyarrow_dataset(filesystem=_files_below(root))
        except DeltaProtocolError as error:
            raise ConfigError(f"{root} cannot be read here: {error}") from error
        return _of_known_ranges(found, log)


def _of_known_ranges(found: ds.FileSystemDataset, log: "Log") -> ds.FileSystemDataset:
    """The dataset with what is known of its files, and no more.

    deltalake 1.6 takes the range of a column that an entry does not mention for one that holds
    nothing, and a range of some rows for one of all: a condition on it would find none.
    """
    partitions = log.metadata().partition_columns
    ranges = _ranges(pa.table(log.get_add_actions(flatten=True)), found.schema)
    fragments = []
    for each in found.get_fragments():
        known = ds.get_partition_keys(each.partition_expression)
        parts = [_is_value(name, known[name]) for name in partitions if name in known]
        parts += ranges.get(each.path, ())
        told = reduce(and_, parts, pc.scalar(True))
        fragments.append(found.format.make_fragment(each.path, found.filesystem, told))
    return ds.FileSystemDataset(fragments, found.schema, found.format, found.filesystem)


def _ranges(listed: pa.Table, schema: pa.Schema) -> dict[str, list[ds.Expression]]:
    """Conditions that hold for all rows of a file, by its path; those of nulls are not excluded."""
    ranges: dict[str, list[ds.Expression]] = {path: [] for path in listed["path"].to_pylist()}
    for name in STATISTICS_COLUMNS:
        if f"min.{name}" not in listed.column_names or name not in schema.names:
            continue
        column, kind = pc.field(name), schema.field(name).type
        bounds = (listed[f"{end}.{name}"].to_pylist() for end in ("min", "max"))
        for path, low, high in zip(ranges, *bounds, strict=True):
            if low is None or high is None:
                continue
            least, most = pa.scalar(low, kind), pa.scalar(high, kind)
            if pa.types.is_timestamp(kind):  # other writers leave out what is below a millisecond
                most = pa.scalar(most.value + _MS_US, kind)
            ranges[path] += [
                (column >= least) | column.is_null(),
                (column <= most) | column.is_null(),
            ]
    return ranges


def _is_value(name: str, value: Any) -> ds.Expression:
    column = pc.field(name)
    return column.is_null() if value is None else column == value


def _files_below(root: TableLocation) -> pafs.FileSystem:
    """The files of a table by pyarrow's own file systems.

    deltalake's is written in Python. Threads of a reader that call it while the interpreter ends
    would abort the process.
    """
    path, files = dataset_source(str(root), storage_of(root))
    return pafs.SubTreeFileSystem(path, files or pafs.LocalFileSystem())


def _files(snapshot: TableSnapshot, root: TableLocation) -> ds.Dataset:
    """Parquet files; those of no table are partitioned as their paths say."""
    sources = [dataset_source(path, snapshot.storage) for path in snapshot.paths]
    found = ds.dataset(
        [path for path, _ in sources],
        format="parquet",
        filesystem=sources[0][1],
        partitioning="hive" if snapshot.kind == "files" else None,
        partition_base_dir=str(root),
    )
    if snapshot.kind != "iceberg":
        return found
    # Older files have fewer columns, and a dataset has those of its first file.
    schemas = [each.physical_schema for each in found.get_fragments()]
    return found.replace_schema(pa.unify_schemas([found.schema, *schemas]))
