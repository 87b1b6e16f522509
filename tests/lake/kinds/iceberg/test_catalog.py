"""Catalogs: a URI, Glue, a configured name; what cannot be used is refused in a sentence."""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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
    MetaException,
    NoSuchObjectException,
    Table,
)
from moto import mock_aws
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    ServerError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from requests.exceptions import ConnectionError as RequestsConnectionError
from tests.lake.conftest import TableKind
from tests.lake.kinds.iceberg.rest_catalog import RestCatalogServer, rest_catalog
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport
from thrift.transport.TTransport import TTransportException

from roquet.lake.kinds.iceberg import catalog as catalogs
from roquet.lake.kinds.iceberg.catalog import (
    CatalogFailed,
    catalog_of,
    check_catalog,
    check_name,
    check_no_secrets,
    explained_catalog,
    is_hive,
    name_of,
    parse_catalog,
    place_of_new,
)
from roquet.lake.kinds.iceberg.iceberg_table import IcebergTable
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import StorageFailed
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import TableDamaged, TableState
from roquet.model.errors import ConfigError, RoquetError

S3 = ObjectLocation("s3://lake/b")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    with rest_catalog(tmp_path / "server") as running:
        yield running


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes pyiceberg's configuration file."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / ".pyiceberg.yaml").write_text(text)

    return write


def test_a_catalog_is_a_uri_a_name_and_options() -> None:
    assert parse_catalog(None) == {}
    assert parse_catalog(["https://lake/api?x=1"]) == {"uri": "https://lake/api?x=1"}
    assert parse_catalog(["prod"]) == {"name": "prod"}
    assert parse_catalog(["glue", "glue.region = eu-west-1"]) == {
        "name": "glue",
        "glue.region": "eu-west-1",
    }
    assert parse_catalog(["type=sql", "uri=sqlite:///a.db"]) == {
        "type": "sql",
        "uri": "sqlite:///a.db",
    }


@pytest.mark.parametrize("texts", [["=sql"], ["a b"], [""], ["/lake/catalog.db"]])
def test_other_texts_name_no_catalog(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="give a URI, a catalog's name, or NAME=VALUE"):
        parse_catalog(texts)


@pytest.mark.parametrize("texts", [["a", "b"], ["http://a", "uri=http://b"], ["x=1", "x=1"]])
def test_two_catalogs_are_one_too_many(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="is given twice"):
        parse_catalog(texts)


def test_a_table_lives_in_a_rest_catalog(iceberg: TableKind, server: RestCatalogServer) -> None:
    options = parse_catalog([server.uri])
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        iceberg.archive(table, 0, 5)
        iceberg.archive(table, 5, 9)
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        assert table.state() == TableState(2, iceberg.offsets(9))
    rows = server.catalog.load_table("lake.all").scan().to_arrow()
    assert rows.num_rows == 18
    snapshot = read_snapshot(str(iceberg.root), "orders", name="lake.all", catalog=options)
    assert snapshot.end == iceberg.offsets(9)
    assert len(snapshot.paths) == 4


def test_a_commit_whose_answer_a_rest_catalog_loses_is_made_once(
    iceberg: TableKind, server: RestCatalogServer
) -> None:
    options = parse_catalog([server.uri])
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        iceberg.archive(table, 0, 5)
        server.loses = 1
        iceberg.archive(table, 5, 9)
        assert table.state() == TableState(2, iceberg.offsets(9))
    assert server.catalog.load_table("lake.all").scan().to_arrow().num_rows == 18


def test_a_name_is_one_of_the_configuration(
    iceberg: TableKind, server: RestCatalogServer, configured: Callable[[str], None]
) -> None:
    configured(f"catalog:\n  prod:\n    uri: {server.uri}\n    token: hunter2\n")
    options = parse_catalog(["prod"])
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        iceberg.archive(table, 0, 3)
    assert server.tokens == {"Bearer hunter2"}, "the secret is taken from the configuration"


def test_a_name_that_is_not_configured_says_how_to(configured: Callable[[str], None]) -> None:
    configured("catalog:\n  other:\n    uri: http://lake\n")
    says = r"--catalog prod-1: no such catalog is configured: .*PYICEBERG_CATALOG__PROD_1__URI"
    with pytest.raises(ConfigError, match=says):
        catalog_of(S3, parse_catalog(["prod-1"]))


def test_what_is_configured_counts_more_than_the_target(
    tmp_path: Path, configured: Callable[[str], None]
) -> None:
    configured(f"catalog:\n  prod:\n    uri: sqlite:///{tmp_path}/p.db\n    warehouse: s3://w\n")
    with catalog_of(S3, {"name": "prod"}) as opened:
        assert opened.properties["warehouse"] == "s3://w"
        assert opened.properties["s3.region"] == "us-east-1"
    with catalog_of(tmp_path, {"uri": f"sqlite:///{tmp_path}/p.db"}) as opened:
        assert opened.properties["warehouse"] == f"file://{tmp_path}"
        assert isinstance(opened, SqlCatalog)


def test_a_table_lives_in_glue(
    iceberg: TableKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "PYICEBERG_HOME"):
        monkeypatch.delenv(name, raising=False)
    options = parse_catalog(["glue", "glue.region=eu-west-1"])
    with mock_aws():
        with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
            iceberg.archive(table, 0, 5)
            iceberg.archive(table, 5, 9)
            assert table.state() == TableState(2, iceberg.offsets(9))
        with catalog_of(iceberg.root, options) as glue:
            assert isinstance(glue, GlueCatalog)
            loaded = glue.load_table("lake.all")
            assert loaded.scan().to_arrow().num_rows == 18
            assert loaded.location().startswith(f"file://{iceberg.root}/")


def test_a_catalog_that_needs_more_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyiceberg.catalog.hive", raising=False)
    monkeypatch.setitem(sys.modules, "thrift.protocol", None)
    with pytest.raises(ConfigError, match=r"pip install 'pyiceberg\[hive\]'"):
        catalog_of(S3, parse_catalog(["thrift://metastore:9083"]))
    with pytest.raises(ConfigError, match=r"pip install 'pyiceberg\[sql-postgres\]'"):
        catalog_of(S3, parse_catalog(["postgresql+psycopg2://there/lake"]))


def test_a_metastore_with_kerberos_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    options = parse_catalog(["thrift://metastore:9083", "hive.kerberos-authentication=true"])
    with pytest.raises(ConfigError, match=r"pip install 'pyiceberg\[hive-kerberos\]'"):
        catalog_of(S3, options)


def test_a_metastore_that_is_away_is_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("thrift.transport").setLevel(logging.NOTSET)
    says = "refused or did not answer: TTransportException Could not connect to any of"
    with (
        pytest.raises(CatalogFailed, match=says),
        explained_catalog(tmp_path),
        closing(catalog_of(tmp_path, parse_catalog(["thrift://127.0.0.1:1"]))) as catalog,
    ):
        catalog.load_table("lake.orders")
    assert not caplog.records, "thrift says the same at once, with a traceback"


def test_a_metastore_leaves_the_place_of_a_new_table_to_its_target(tmp_path: Path) -> None:
    hive = parse_catalog(["thrift://127.0.0.1:1"])
    with closing(catalog_of(S3, hive)) as catalog:
        assert place_of_new(catalog, "lake.all") == "s3://lake/b/lake/all"
    with closing(catalog_of(tmp_path, hive)) as catalog:
        assert place_of_new(catalog, "lake.all") == f"file://{tmp_path}/lake/all"
    with closing(catalog_of(tmp_path, {})) as catalog:
        assert place_of_new(catalog, "lake.all") is None


def test_errors_of_a_metastore_are_told_by_their_own_words() -> None:
    says = "did not answer: MetaException Put request failed$"
    with pytest.raises(CatalogFailed, match=says), explained_catalog(S3):
        raise MetaException("Put request failed\nat ObjectStore")


def test_a_uri_that_is_no_catalog_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="--catalog: Could not infer the catalog type"):
        catalog_of(S3, parse_catalog(["ftp://lake"]))


def test_a_catalog_that_is_away_is_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(CatalogFailed, match="refused or did not answer: ConnectionError"),
        explained_catalog(tmp_path),
    ):
        catalog_of(tmp_path, parse_catalog(["http://127.0.0.1:1"]))


def test_a_table_in_an_object_store_needs_a_catalog() -> None:
    with pytest.raises(ConfigError, match="needs a catalog elsewhere: --catalog https://"):
        check_catalog(S3, {})


@pytest.mark.parametrize("name", ["orders", "lake.", ".orders", "lake..orders"])
def test_a_table_has_a_namespace(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is not NAMESPACE\.NAME"):
        check_name(name)


def test_a_table_without_a_name_is_named_after_its_topic() -> None:
    assert name_of("orders-2026") == f"{catalogs.NAMESPACE}.orders_2026"


@pytest.mark.parametrize(
    "options",
    [
        {"s3.secret-access-key": "hunter2"},
        {"token": "hunter2"},
        {"credential": "id:hunter2"},
        {"uri": "postgresql://me:hunter2@there/lake"},
        {"uri": "postgresql://there/lake?user=me&password=hunter2"},
        {"uri": "https://there/lake?sig=hunter2"},
        {"adls.account-key": "hunter2"},
        {"adls.connection-string": "AccountName=lake;AccountKey=hunter2"},
        {"header.Authorization": "Basic hunter2"},
    ],
)
def test_secrets_are_no_options_of_a_catalog(options: dict[str, str]) -> None:
    [name] = options
    with pytest.raises(ConfigError, match="PYICEBERG_CATALOG__ROQUET__") as error:
        catalog_of(Path("/lake"), options)
    assert "hunter2" not in str(error.value)
    assert name in str(error.value)


def test_what_is_no_secret_may_be_said() -> None:
    check_no_secrets(parse_catalog(["https://lake/api?prefix=a&warehouse=b", "warehouse=lake"]))
    check_no_secrets(parse_catalog(["glue", "glue.region=eu-west-1", "glue.id=123456789012"]))
    check_no_secrets({"uri": "sqlite:////lake/monkey.db", "s3.endpoint": "http://127.0.0.1:9000"})


def test_the_variable_of_a_secret_has_the_name_of_its_catalog() -> None:
    with pytest.raises(ConfigError, match="PYICEBERG_CATALOG__PROD_1__TOKEN"):
        catalog_of(S3, {"name": "prod-1", "token": "hunter2"})


def test_errors_of_a_catalog_are_a_sentence_about_the_catalog() -> None:
    target = S3
    for error in (RequestsConnectionError("reset"), ServerError("503"), TableAlreadyExistsError()):
        with (
            pytest.raises(CatalogFailed, match="the catalog of s3://lake/b refused or did not"),
            explained_catalog(target),
        ):
            raise error
    with pytest.raises(StorageFailed), explained_catalog(target):
        raise OSError("SLOW_DOWN")
    with pytest.raises(CommitFailedException), explained_catalog(target):
        raise CommitFailedException


def test_a_catalog_that_lost_the_table_or_its_metadata_is_a_sentence() -> None:
    with (
        pytest.raises(CatalogFailed, match=r"has lost the table, .*: lake\.b\. Its files are"),
        explained_catalog(S3),
    ):
        raise NoSuchTableError("lake.b")
    with (
        pytest.raises(TableDamaged, match="a file that the catalog of s3://lake/b names is missi"),
        explained_catalog(S3),
    ):
        raise FileNotFoundError(2, "no such file")


def test_readers_are_told_nothing_about_commits() -> None:
    errors = (NoSuchTableError("lake.b"), FileNotFoundError(2, "no such file"))
    for error in errors:
        with pytest.raises(RoquetError) as caught, explained_catalog(S3, is_reader=True):
            raise error
        assert "commit" not in str(caught.value)
        assert "archive to" not in str(caught.value)


def test_a_reader_whose_file_is_missing_is_told_which(iceberg: TableKind) -> None:
    iceberg.fill(5)
    for manifest in iceberg.root.rglob("*.avro"):
        manifest.unlink()
    with pytest.raises(TableDamaged, match=r"names is missing; restore it, .*\.avro"):
        read_snapshot(str(iceberg.root), "orders")


def test_a_catalog_that_goes_away_under_its_archive_is_a_sentence(
    iceberg: TableKind, server: RestCatalogServer
) -> None:
    options = parse_catalog([server.uri])
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        iceberg.archive(table, 0, 5)
        server.is_away = True
        with pytest.raises(CatalogFailed, match="refused or did not answer: ServiceUnavailable"):
            iceberg.archive(table, 5, 9)
        server.is_away = False
        iceberg.archive(table, 5, 9)
    assert server.catalog.load_table("lake.all").scan().to_arrow().num_rows == 18


def test_a_catalog_that_is_away_or_lost_the_table_is_a_sentence_for_readers(
    iceberg: TableKind, server: RestCatalogServer
) -> None:
    options = parse_catalog([server.uri])
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        iceberg.archive(table, 0, 5)
    server.is_away = True
    with pytest.raises(CatalogFailed, match="refused or did not answer: ServiceUnavailable"):
        read_snapshot(str(iceberg.root), "orders", name="lake.all", catalog=options)
    server.is_away = False
    server.catalog.drop_table("lake.all")
    with pytest.raises(ConfigError, match=r"has no table lake\.all"):
        read_snapshot(str(iceberg.root), "orders", name="lake.all", catalog=options)
    gone = parse_catalog(["http://127.0.0.1:1"])
    with pytest.raises(CatalogFailed, match="refused or did not answer: ConnectionError"):
        read_snapshot(str(iceberg.root), "orders", catalog=gone)


def test_a_table_that_the_catalog_loses_is_not_made_again(
    iceberg: TableKind, server: RestCatalogServer
) -> None:
    options = parse_catalog([server.uri])
    with IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options) as table:
        iceberg.archive(table, 0, 5)
        server.catalog.drop_table("lake.all")
        with pytest.raises(CatalogFailed, match="has lost the table, so nothing was committed"):
            iceberg.archive(table, 5, 9)
    with pytest.raises(ConfigError, match="has data files, and the catalog knows no table there"):
        IcebergTable(iceberg.root, iceberg.wanted, name="lake.all", catalog=options)


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
