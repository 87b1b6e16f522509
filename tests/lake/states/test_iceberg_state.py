"""The latest states as an Iceberg table: merged by its own buckets, a snapshot for each commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from roquet.model.errors import ConfigError
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params, run

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import MakeSpark, Topic


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


def test_a_table_is_continued_as_it_was_made(job: IcebergMaterializer) -> None:
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
            topic="orders",
            target=str(job.root),
            kind="iceberg",
            name="roquet.all",
            options=options,
        ),
        job.eager,
    )
    with pytest.raises(ConfigError, match="is not one that `roquet spark materialize` made"):
        job.run(name="roquet.all")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"kind": "parquet"}, "--kind parquet: give delta or iceberg"),
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
