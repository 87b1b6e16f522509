"""Iceberg tables: archives as tables of an Iceberg catalog.

iceberg_table   the archive's table: its state, its commits, its files
catalog         the catalog that a user names, and its errors
table_place     where a table lies: a directory, or a prefix of an object store
hive_calls      tables of a Hive metastore by calls that Hive 2.3 to 4 answer
layout          partition fields and sort order
expiry          older snapshots, and the files that only they have
data_files      files of a table as entries of its manifests
named_files     files that any metadata at the table's place names
snapshot_commit a change whose files stay until its outcome is known
commit_tries    how often a refused change is tried again
"""

from roquet.lake.kinds.iceberg.catalog import (
    NAMESPACE,
    CatalogFailed,
    catalog_of,
    check_catalog,
    check_installed,
    explained_catalog,
    name_of,
    parse_catalog,
)
from roquet.lake.kinds.iceberg.data_files import plain_paths
from roquet.lake.kinds.iceberg.iceberg_table import IDENTITY, RETIRED, STATE, IcebergTable
from roquet.lake.kinds.iceberg.table_place import check_place, local_path

__all__ = [
    "IDENTITY",
    "NAMESPACE",
    "RETIRED",
    "STATE",
    "CatalogFailed",
    "IcebergTable",
    "catalog_of",
    "check_catalog",
    "check_installed",
    "check_place",
    "explained_catalog",
    "local_path",
    "name_of",
    "parse_catalog",
    "plain_paths",
]
