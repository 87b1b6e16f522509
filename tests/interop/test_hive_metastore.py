"""Archives as Iceberg tables of a Hive metastore: exactly once; locks that killed writers left."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import CommitFailedException
from tests.spark_suite.conftest import InProcessSpark, PersistentTopic, s3_server
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport
from thrift.transport.TTransport import TTransportException

from harness import genuine
from harness.ports import free_port
from harness.processes import Process
from roquet.lake.kinds.iceberg import CatalogFailed, catalog_of, commits, parse_catalog
from roquet.lake.lag.table_lag import table_lag
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.open_table import table_location
from roquet.lake.snapshot import read_snapshot
from roquet.lake.status import read_statuses
from roquet.lake.table import TableConflict
from roquet.model.errors import ConfigError, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, run
from roquet.spark.jobs.audit import audit_job
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

VERSION: Final = "3.1.3"
PROGRAM: Final = str(Path(__file__).with_name("HiveMetastore.java"))

UNWANTED: Final = (
    "jdk.tools:jdk.tools",  # a file of Java 8
    "org.slf4j:slf4j-log4j12",  # a second logger
)

LOCK_SECONDS: Final = 3
"""How long a lock lives, which is five minutes otherwise."""

COUNT: Final = 100
"""Messages sent to each of four queues at a time."""


@contextmanager
def metastore(folder: Path, port: int) -> Iterator[str]:
    """The URI of a Hive metastore that keeps its tables in a folder, until the block ends."""
    coordinates = [f"org.apache.hive:hive-standalone-metastore:{VERSION}"]
    jars = genuine.fetched(f"hive-metastore-{VERSION}", coordinates, without=UNWANTED)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += ["-Dderby.system.durability=test", f"-Dderby.system.home={folder}"]
    arguments = [PROGRAM, str(folder), str(port), str(LOCK_SECONDS)]
    log = folder / "metastore.log"
    command = ["java", *options, "-cp", f"{jars}/*", *arguments]
    with Process(command, log, ready="ready\n", home=folder):
        yield f"thrift://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def uri(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with metastore(tmp_path_factory.mktemp("hive"), free_port()) as running:
        yield running


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PersistentTopic]:
    with BlockingCluster(store=tmp_path_factory.mktemp("brokers")) as running:
        yield PersistentTopic(running)


class HiveArchive:
    """Archives of the topic to one table of the metastore; tasks run in this process."""

    def __init__(self, topic: PersistentTopic, uri: str, target: str, name: str) -> None:
        self.topic, self.target, self.name = topic, target, name
        self.catalog = parse_catalog([uri, "lock-check-max-wait-time=0.5"])

    def run(self) -> ArchiveProgress:
        options = {"namesrv": self.topic.namesrv, "minPartitions": "2"}
        params = Params(
            topic="orders", target=self.target, options=options,
            kind="iceberg", name=self.name, catalog=self.catalog,
        )  # fmt: skip
        spark: Any = InProcessSpark
        return run(params, spark)

    @property
    def root(self) -> TableLocation:
        return table_location(self.target)

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """The catalog, as others open it."""
        with closing(catalog_of(self.root, self.catalog)) as catalog:
            yield catalog

    def lock(self) -> int:
        """Take the table's lock as a writer does that is killed then; the lock's number."""
        host, port = self.catalog["uri"].removeprefix("thrift://").split(":")
        transport = TTransport.TBufferedTransport(TSocket.TSocket(host, int(port)))
        space, name = self.name.lower().split(".")
        component = LockComponent(
            level=LockLevel.TABLE, type=LockType.EXCLUSIVE, dbname=space, tablename=name
        )
        with closing(transport):
            transport.open()
            client = Client(TBinaryProtocol.TBinaryProtocol(transport))
            request = LockRequest(component=[component], user="roquet", hostname="killed")
            return int(client.lock(request).lockid)

    def bodies(self) -> list[bytes]:
        """The bodies that anybody else reads from the table, sorted."""
        with self.opened() as catalog:
            return sorted(catalog.load_table(self.name).scan().to_arrow()["body"].to_pylist())

    def is_whole(self) -> bool:
        """Whether the table has each message once, by its rows and by our audit."""
        params = audit_job.Params(
            topic="orders", target=self.target, name=self.name, catalog=self.catalog,
            options={"namesrv": self.topic.namesrv},
        )  # fmt: skip
        return self.bodies() == sorted(self.topic.sent) and audit_job.run(params).is_clean


@pytest.fixture
def archive(uri: str, orders: PersistentTopic, tmp_path: Path) -> HiveArchive:
    """An archive of the topic to a table of its own, in the namespace of them all."""
    orders.send(count=COUNT)
    return HiveArchive(orders, uri, str(tmp_path / "lake of orders"), f"Shop.{tmp_path.name}")


def test_a_topic_becomes_a_table_of_the_metastore(archive: HiveArchive) -> None:
    sent = len(archive.topic.sent)
    assert archive.run().rows == sent
    archive.topic.send(count=COUNT)
    assert archive.run().rows == 4 * COUNT
    assert archive.run().rows == 0
    assert archive.is_whole()
    with archive.opened() as catalog:
        home = catalog.load_table(archive.name).location()
    assert home == f"file://{archive.target}/{archive.name.replace('.', '/')}"
    [status] = read_statuses(archive.target)
    assert table_lag(archive.target, status, SYSTEM_CLOCK.now_ms()).lag == 0


def test_a_table_in_an_object_store_lies_in_its_target(uri: str, orders: PersistentTopic) -> None:
    with s3_server() as server, server.reached():
        archive = HiveArchive(orders, uri, "s3://lake/orders", "shop.in_s3")
        orders.send(count=COUNT)
        assert archive.run().rows == len(orders.sent)
        orders.send(count=COUNT)
        assert archive.run().rows == 4 * COUNT
        assert archive.is_whole()
        assert any(key.startswith("lake/orders/shop/in_s3/data/day=") for key in server.stored())


def test_of_two_commits_at_the_same_moment_the_metastore_takes_one(
    archive: HiveArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.run()
    commit: Callable[..., Any] = HiveCatalog.commit_table
    refusals = list[CommitFailedException]()

    def commit_after_another(*args: Any) -> Any:
        monkeypatch.setattr(HiveCatalog, "commit_table", commit)
        with archive.opened() as catalog:
            table = catalog.load_table(archive.name)
            table.append(table.scan().to_arrow().slice(0, 0))
        with pytest.raises(CommitFailedException) as refused:
            commit(*args)
        refusals.append(refused.value)
        raise refused.value

    archive.topic.send(count=COUNT)
    monkeypatch.setattr(HiveCatalog, "commit_table", commit_after_another)
    assert archive.run().rows == 4 * COUNT
    assert len(refusals) == 1
    assert archive.is_whole()


@pytest.mark.parametrize("is_made", [True, False])
def test_a_commit_whose_connection_is_lost_is_made_once(
    archive: HiveArchive, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """Its lock is left, and the next commit waits until the metastore ends it."""
    archive.run()
    alter: Callable[..., Any] = Client.alter_table_with_environment_context
    unlock: Callable[..., Any] = Client.unlock

    def loses(client: Any, **arguments: Any) -> None:
        monkeypatch.setattr(Client, "alter_table_with_environment_context", alter)
        if is_made:
            alter(client, **arguments)
        monkeypatch.setattr(Client, "unlock", is_lost)
        raise TTransportException(message="TSocket read 0 bytes")

    def is_lost(*_: object) -> None:
        monkeypatch.setattr(Client, "unlock", unlock)
        raise TTransportException(message="Transport not open")

    archive.topic.send(count=COUNT)
    monkeypatch.setattr(Client, "alter_table_with_environment_context", loses)
    if is_made:
        assert archive.run().rows == 4 * COUNT
    else:
        with pytest.raises(CatalogFailed, match="refused or did not answer: TTransportException"):
            archive.run()
    archive.topic.send(count=COUNT)
    assert archive.run().rows == 4 * COUNT * (1 if is_made else 2)
    assert archive.is_whole()


def test_a_lock_that_a_killed_writer_left_is_waited_for(
    archive: HiveArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = archive.lock()
    archive.run()
    archive.topic.send(count=COUNT)
    assert archive.lock() > number
    with monkeypatch.context() as patch:
        patch.setattr(commits, "LOCKED_MAX", 1)
        with pytest.raises(TableConflict, match=r"held the lock of .* SHOW LOCKS names the owner"):
            archive.run()
    assert archive.run().rows == 4 * COUNT
    assert archive.is_whole()


def test_a_metastore_that_goes_away_is_a_sentence_and_the_next_run_goes_on(
    java: None, orders: PersistentTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, home = free_port(), tmp_path / "hive"
    home.mkdir()
    away = "the catalog of .* refused or did not answer: TTransportException Could not connect"
    commit: Callable[..., Any] = HiveCatalog.commit_table
    orders.send(count=COUNT)
    with contextlib.ExitStack() as running:
        uri = running.enter_context(metastore(home, port))
        archive = HiveArchive(orders, uri, str(tmp_path / "lake"), "shop.orders")
        archive.run()
        orders.send(count=COUNT)

        def goes_away(*args: Any) -> Any:
            running.close()
            return commit(*args)

        monkeypatch.setattr(HiveCatalog, "commit_table", goes_away)
        with pytest.raises(CatalogFailed, match=away):
            archive.run()
        monkeypatch.undo()
    with pytest.raises(CatalogFailed, match=away):
        archive.run()
    with pytest.raises(CatalogFailed, match=away):
        read_snapshot(archive.target, "orders", name="shop.orders", catalog=archive.catalog)
    with metastore(home, port):
        assert archive.run().rows == 4 * COUNT
        assert archive.is_whole()


def test_a_table_that_the_metastore_lost_is_not_made_again(
    archive: HiveArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.run()
    archive.topic.send(count=COUNT)
    commit: Callable[..., Any] = HiveCatalog.commit_table

    def loses(*args: Any) -> Any:
        with archive.opened() as catalog:
            catalog.drop_table(archive.name)
        return commit(*args)

    monkeypatch.setattr(HiveCatalog, "commit_table", loses)
    with pytest.raises(CatalogFailed, match="has lost the table, so nothing was committed"):
        archive.run()
    with pytest.raises(ConfigError, match="has data files, and the catalog knows no table there"):
        archive.run()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop.a.b", "--table shop.a.b: .* hierarchical namespaces are not supported"),
        ("shop-1.a", "InvalidObjectException shop-1 is not a valid database name"),
    ],
)
def test_names_that_a_metastore_does_not_take_are_a_sentence(
    orders: PersistentTopic, uri: str, tmp_path: Path, name: str, says: str
) -> None:
    with pytest.raises(RoquetError, match=says):
        HiveArchive(orders, uri, str(tmp_path / "lake"), name).run()
