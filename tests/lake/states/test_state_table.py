"""The table says what it is of, and is neither mixed with another one nor taken for an archive."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Log
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from tests.lake.kinds.delta.delta_log import age

from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.states.state_table import (
    REQUIRED_COLUMNS,
    StateIdentity,
    StateTable,
    agreed_settings,
    check_wanted,
)
from roquet.lake.table import ArchiveIdentity
from roquet.model.errors import ConfigError
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params, run

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import MakeSpark, Topic


def identity(**settings: Any) -> StateIdentity:
    wanted = StateIdentity(topic="accounts", **{"buckets": 4, **settings})
    check_wanted(wanted)
    return agreed_settings(wanted, None)


def test_a_table_has_the_columns_and_the_bucket(tmp_path: Path) -> None:
    with StateTable(tmp_path / "table", identity()):
        pass
    schema = Log(str(tmp_path / "table")).schema()
    names = [field.name for field in schema.fields]
    assert names == [*identity().columns, "bucket"]
    assert Log(str(tmp_path / "table")).metadata().partition_columns == ["bucket"]


def test_a_table_that_keeps_deleted_rows_marks_them(tmp_path: Path) -> None:
    with StateTable(tmp_path / "table", identity(deletes="keep")):
        pass
    names = [field.name for field in Log(str(tmp_path / "table")).schema().fields]
    assert names[-2:] == ["is_deleted", "bucket"]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"key": "property:id"}, "key key, not property:id"),
        ({"deletes": "keep"}, "deletes tombstone, not keep"),
        ({"buckets": 8}, "buckets 4, not 8"),
    ],
)
def test_a_table_is_continued_as_it_was_made(
    tmp_path: Path, other: dict[str, Any], text: str
) -> None:
    with StateTable(tmp_path / "table", identity()):
        pass
    with pytest.raises(ConfigError, match=text):
        StateTable(tmp_path / "table", identity(**other))
    with StateTable(tmp_path / "table", identity()) as table:
        assert table.settings == identity()


def test_a_table_remembers_what_is_not_said_again(tmp_path: Path) -> None:
    made = identity(key="property:id", deletes="keep", body_format="json", infer_body=True)
    assert (made.format, identity().format) == (3, 2), "older Roquets know no such columns"
    with StateTable(tmp_path / "table", made):
        pass
    with StateTable(tmp_path / "table", StateIdentity(topic="accounts")) as table:
        assert table.settings == made
        assert table.identity.infer_body


def test_an_archive_is_no_table_of_latest_states(tmp_path: Path) -> None:
    with DeltaTable(tmp_path / "table", ArchiveIdentity(topic="accounts", columns=())):
        pass
    with pytest.raises(ConfigError, match="not one that `roquet spark materialize` made"):
        StateTable(tmp_path / "table", identity())


def test_a_table_of_latest_states_is_no_archive(tmp_path: Path) -> None:
    with StateTable(tmp_path / "table", identity()):
        pass
    with pytest.raises(ConfigError, match="is a Delta table, but not an archive"):
        DeltaTable(tmp_path / "table", ArchiveIdentity(topic="accounts", columns=()))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"key": "id"}, "property:id"),
        ({"key": "property:"}, "the name of the property is missing"),
        ({"deletes": "soft"}, "tombstone or keep"),
        ({"buckets": 5_000}, "from 1 to 4096"),
        ({"columns": (*REQUIRED_COLUMNS, "tag"), "body_format": "json"}, "needs the column 'body'"),
        ({"columns": ("key", "body")}, "needs the column 'broker'"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        identity(**settings)


def test_a_table_of_an_earlier_roquet_finds_all_rows_once_it_is_opened(tmp_path: Path) -> None:
    root = tmp_path / "table"
    with StateTable(root, identity()) as table:
        settings, queue = table.settings, ("accounts", "broker-a", 0)
        rows: dict[str, Any] = {name: [None, None] for name in settings.columns}
        rows |= {"key": [None, "a"], "tag": ["UA", "UA"], "queue_offset": [0, 1]}
        directory = table.begin()
        writer = PartitionedWriter(directory, settings.file_schema(), scheme=settings.key_buckets)
        writer.write(pa.RecordBatch.from_pydict(rows, schema=settings.file_schema()))
        table.commit(table.state((queue,)).then({queue: 2}, directory.name, writer.close(), ()))
    age(root)
    conditions = [pc.field("tag") == "UA", pc.field("key").is_null(), pc.field("key") == "a"]
    for expected in ([0, 0, 1], [2, 1, 1]):
        rows_there = Log(str(root)).to_pyarrow_dataset()
        assert [rows_there.count_rows(filter=each) for each in conditions] == expected
        StateTable(root, identity()).close()


class IcebergMaterializer:
    """Runs the job for one topic and an Iceberg table; all keys are in one queue."""

    def __init__(self, topic: "Topic", eager: "MakeSpark", root: Path) -> None:
        self.topic, self.eager, self.root = topic, eager, root

    def send(self, *changes: tuple[str | None, bytes]) -> None:
        keys, bodies = zip(*changes, strict=True)
        rows = {"key": pa.array(keys, pa.string()), "body": list(bodies)}
        self.topic.send_rows("broker-a", 1, pa.RecordBatch.from_pydict(rows))

    def run(self, *, spark: Any = None, **params: Any) -> MaterializeProgress:
        options = {"namesrv": self.topic.namesrv, "timeout": "2s", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": str(self.root), "options": options, "buckets": 3}
        params = {"kind": "iceberg", **arguments, **params}
        return run(Params(**params), lambda: spark or self.eager())

    @contextmanager
    def table(self) -> Iterator[Table]:
        """The table as others open it."""
        with SqlCatalog("roquet", uri=f"sqlite:///{self.root}/catalog.db") as catalog:
            yield catalog.load_table("roquet.orders")

    def rows(self) -> list[tuple[str | None, bytes]]:
        """Key and body of each row, sorted by the body."""
        with self.table() as table:
            rows = table.scan(selected_fields=("key", "body")).to_arrow().to_pylist()
        return sorted(((row["key"], row["body"]) for row in rows), key=lambda row: row[1])


@pytest.fixture
def job(topic: "Topic", eager: "MakeSpark", tmp_path: Path) -> IcebergMaterializer:
    return IcebergMaterializer(topic, eager, tmp_path / "state")


def test_the_table_has_the_latest_change_of_each_key(job: IcebergMaterializer) -> None:
    job.send(("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"))
    done = job.run()
    assert (done.rows, done.changed, done.deleted, done.number) == (4, 3, 0, 2)
    assert job.rows() == [("b", b"2"), ("a", b"3"), ("c", b"4")]
    job.send(("b", b"null"), ("c", b"5"), ("d", b"6"))
    assert job.run(spark=job.eager(repeats=True)).deleted == 1
    assert job.rows() == [("a", b"3"), ("c", b"5"), ("d", b"6")]
    assert job.run().rows == 0


def test_buckets_without_changes_are_left_alone(job: IcebergMaterializer) -> None:
    job.send(*((str(at), b"%d" % at) for at in range(20)))
    job.run()
    before = files(job)
    job.send(("7", b"7!"))
    job.run()
    assert len(before) == len(files(job)) == 3
    assert len(before & files(job)) == 2
    assert len(job.rows()) == 20


def test_readers_look_in_the_bucket_of_a_key_alone(job: IcebergMaterializer) -> None:
    job.send(*((str(at), b"%d" % at) for at in range(20)))
    job.run()
    with job.table() as table:
        scan = table.scan("key = '7'")
        assert len(list(scan.plan_files())) == 1
        assert scan.to_arrow()["body"].to_pylist() == [b"7"]


def test_messages_without_a_key_may_be_quarantined(job: IcebergMaterializer) -> None:
    for _ in range(2):
        job.send(("a", b"1"), (None, b"2"))
        assert job.run(null_keys="quarantine").null_keys == 1
    assert job.rows() == [("a", b"1"), (None, b"2"), (None, b"2")]


def test_an_iceberg_table_is_continued_as_it_was_made(job: IcebergMaterializer) -> None:
    job.send(("a", b"1"))
    job.run()
    with pytest.raises(ConfigError, match="buckets 3, not 4: say the same"):
        job.run(buckets=4)
    options = {"namesrv": job.topic.namesrv}
    archive = archive_job.Params(
        topic="orders", target=str(job.root), kind="iceberg", options=options
    )
    with pytest.raises(ConfigError, match=r"table roquet\.orders of .* is not an archive"):
        archive_job.run(archive, job.eager)
    archive_job.run(
        archive_job.Params(
            topic="orders", target=str(job.root), kind="iceberg", name="roquet.all", options=options
        ),
        job.eager,
    )
    with pytest.raises(ConfigError, match="is not one that `roquet spark materialize` made"):
        job.run(name="roquet.all")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"kind": "parquet"}, "Write --kind delta, the default, or iceberg"),
        ({"kind": "delta", "name": "a.b"}, "a name and a catalog are for Iceberg tables"),
        ({"target": "s3://lake/orders"}, "needs a catalog elsewhere: --catalog https://"),
        ({"target": "gs://lake/orders"}, "are of kind delta, not iceberg"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    job: IcebergMaterializer, params: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        job.run(**params)


def files(job: IcebergMaterializer) -> set[str]:
    """The paths of the files that readers see."""
    with job.table() as table:
        return {task.file.file_path for task in table.scan().plan_files()}
