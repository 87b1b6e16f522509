"""Hive calls: tables of a metastore by calls that Hive 2.3 to 4 answer.

pyiceberg 0.12 reads tables by calls that Hive does not have since 4.0.1.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.typedef import Identifier


def is_hive(catalog: "Catalog") -> bool:
    """Whether a catalog is that of a Hive metastore; imports nothing."""
    return any(each.__module__ == "pyiceberg.catalog.hive" for each in type(catalog).__mro__)


def use_calls_of_hive_4(catalog: Any) -> None:
    """Have this catalog of a Hive metastore read and list its tables by other calls."""

    def list_tables(namespace: "str | Identifier") -> "list[Identifier]":
        return _table_names(catalog, catalog.identifier_to_database(namespace))

    catalog._get_hive_table = _table
    catalog.list_tables = list_tables


def _table(client: Any, database_name: str, table_name: str) -> Any:
    from hive_metastore.ttypes import GetTableRequest, NoSuchObjectException
    from pyiceberg.exceptions import NoSuchTableError

    request = GetTableRequest(dbName=database_name, tblName=table_name)
    try:
        return client.get_table_req(request).table
    except NoSuchObjectException as error:
        raise NoSuchTableError(f"{database_name}.{table_name}") from error


def _table_names(catalog: Any, database_name: str) -> "list[Identifier]":
    from hive_metastore.ttypes import GetTablesRequest

    with catalog._client as client:
        names = client.get_all_tables(db_name=database_name)
        request = GetTablesRequest(dbName=database_name, tblNames=names)
        tables = client.get_table_objects_by_name_req(request).tables if names else []
    kinds = {each.tableName: each.parameters.get("table_type", "") for each in tables}
    return [(database_name, name) for name, kind in kinds.items() if kind.lower() == "iceberg"]
