"""Hive calls: tables are read and listed without the calls that Hive 4 has no more."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ThriftHiveMetastore import Processor
from hive_metastore.ttypes import (
    GetTableRequest,
    GetTableResult,
    GetTablesRequest,
    GetTablesResult,
    NoSuchObjectException,
    Table,
)
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport
from thrift.transport.TTransport import TTransportException

from roquet.lake.kinds.iceberg.catalog import catalog_of
from roquet.lake.kinds.iceberg.hive_calls import is_hive


class MetastoreTables:
    """Answers of a metastore by the calls that Hive 4 has left; any other call is an error."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = {table.tableName: table for table in tables}

    def get_all_tables(self, _database: str) -> list[str]:
        return [*self._tables]

    def get_table_req(self, request: GetTableRequest) -> GetTableResult:
        if request.tblName not in self._tables:
            raise NoSuchObjectException(request.tblName)
        return GetTableResult(table=self._tables[request.tblName])

    def get_table_objects_by_name_req(self, request: GetTablesRequest) -> GetTablesResult:
        return GetTablesResult(tables=[self._tables[name] for name in request.tblNames])


def serve(listening: socket.socket, processor: Any) -> None:
    """Answer one connection after another until the socket is shut down."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(TTransportException):
            stream = TSocket.TSocket()
            stream.setHandle(connection)
            protocol = TBinaryProtocol.TBinaryProtocol(TTransport.TBufferedTransport(stream))
            while True:
                processor.process(protocol, protocol)


def hive_table(name: str, **parameters: str) -> Table:
    return Table(dbName="lake", tableName=name, parameters=parameters)


@pytest.fixture
def metadata(tmp_path: Path) -> str:
    """The location of the metadata of a table."""
    with closing(
        SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/a.db", warehouse=f"file://{tmp_path}")
    ) as sql:
        sql.create_namespace("lake")
        return sql.create_table("lake.orders", Schema()).metadata_location


@pytest.fixture
def catalog(tmp_path: Path, metadata: str) -> Iterator[Catalog]:
    """The catalog of a metastore with an Iceberg table and one of Hive's own."""
    iceberg = hive_table("orders", table_type="ICEBERG", metadata_location=metadata)
    processor = Processor(MetastoreTables([iceberg, hive_table("plain")]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening, processor))
        thread.start()
        uri = f"thrift://127.0.0.1:{listening.getsockname()[1]}"
        with closing(catalog_of(tmp_path, {"uri": uri})) as opened:
            yield opened
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_table_is_loaded_by_the_call_that_hive_4_has(catalog: Catalog, metadata: str) -> None:
    assert catalog.load_table("lake.orders").metadata_location == metadata
    with pytest.raises(NoSuchTableError, match=r"lake\.letters"):
        catalog.load_table("lake.letters")


def test_iceberg_tables_alone_are_listed(catalog: Catalog) -> None:
    assert catalog.list_tables("lake") == [("lake", "orders")]


def test_only_the_catalog_of_a_metastore_is_one_of_hive(catalog: Catalog, tmp_path: Path) -> None:
    assert is_hive(catalog)
    with closing(catalog_of(tmp_path, {})) as sql:
        assert not is_hive(sql)
