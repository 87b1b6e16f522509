"""Iceberg tables: archives as tables of an Iceberg catalog.

iceberg_table   the archive's table: its state, its commits, its files
catalog         the catalog that a user names, and its errors
table_place     where a table lies: a directory, or a prefix of an object store
layout          columns, partition fields, sort order, and files in manifests
named_files     files that metadata names, and the expiry of older snapshots
commits         changes that are refused, and whether a table was set back
"""

from roquet.lake.kinds.iceberg.catalog import CatalogFailed, catalog_of, parse_catalog
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable

__all__ = ["CatalogFailed", "IcebergTable", "catalog_of", "parse_catalog"]
