"""The Spark job: rows by history, reproducible files, and parts that are whole."""

import threading
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from roquet.lab import spark_job, study
from roquet.lab.measures import HistoryMeasures
from roquet.lab.scenario import PRESETS
from roquet.lab.simulate import simulate
from roquet.lab.study import Study, StudyDirectory
from roquet.lab.timeline import seed_of

STUDY = Study(
    scenarios=(replace(PRESETS["churn"], messages=40), replace(PRESETS["steady"], messages=40)),
    strategies=("AVG", "POP"),
    histories=12,
    seed=3,
)


def test_a_column_stands_for_each_field_of_a_row() -> None:
    assert spark_job.SCHEMA.names == [*HistoryMeasures.__struct_fields__]
    assert spark_job.SCHEMA.field("burst").type == pa.float64()
    assert spark_job.SCHEMA.field("moved").type == pa.int64()


def test_rows_are_ordered_by_history_scenario_and_strategy_and_are_those_of_play() -> None:
    rows = spark_job.rows(STUDY, [4, 9]).to_pylist()
    keys = [(row["history"], row["scenario"], row["strategy"]) for row in rows]
    assert keys == [
        (number, scenario, name)
        for number in (4, 9)
        for scenario in ("churn", "steady")
        for name in ("AVG", "POP")
    ]
    alone = simulate(STUDY.scenarios[1], "POP", seed_of(3, 9))
    assert HistoryMeasures(**rows[-1]) == replace(alone, history=9)


def test_batches_may_be_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = pa.RecordBatch.from_pydict({"id": list(range(7))})
    whole = pa.Table.from_batches(spark_job.simulator(STUDY)(iter([numbers])))
    monkeypatch.setattr(spark_job, "CHUNK_HISTORIES", 2)
    assert pa.Table.from_batches(spark_job.simulator(STUDY)(iter([numbers]))).equals(whole)


def files(place: StudyDirectory) -> dict[str, bytes]:
    return {
        path.relative_to(place.directory).as_posix(): path.read_bytes()
        for path in sorted(place.table.rglob("*"))
        if path.is_file()
    }


class WrittenTable:
    """Writes files as Spark does: under names that differ each time."""

    turn = 0

    def __init__(self, rows: pa.RecordBatch, size: int) -> None:
        self.write = self
        self._files = [rows.slice(at, size) for at in range(0, rows.num_rows, size)]

    def parquet(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        for number, rows in enumerate(self._files):
            type(self).turn += 1
            name = f"part-{number:05d}-{self.turn}.snappy.parquet"
            pq.write_table(pa.Table.from_batches([rows]), Path(path) / name)
            (Path(path) / f".{name}.crc").touch()
        (Path(path) / "_SUCCESS").touch()


class CompletedStage:
    numCompletedTasks = 1  # noqa: N815 - Spark's name


class SparkStub:
    """A Spark session with only what the job uses."""

    def __init__(self) -> None:
        self.sparkContext = self

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802 - Spark's name
        pass

    def statusTracker(self) -> "SparkStub":  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        return [1, 2]

    def getStageInfo(self, number: int) -> CompletedStage | None:  # noqa: N802 - Spark's name
        return CompletedStage() if number == 1 else None


@pytest.fixture
def spark_stub(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Parts of two files of three histories each."""
    monkeypatch.setattr(study, "PARTITIONS", 2)
    monkeypatch.setattr(study, "PARTITION_ROWS", 12)
    monkeypatch.setattr(spark_job, "PROGRESS_PERIOD_S", 0.001)
    monkeypatch.setattr(
        spark_job,
        "table",
        lambda _, of, numbers: WrittenTable(spark_job.rows(of, list(numbers)), 12),
    )
    return cast("SparkSession", SparkStub())


def test_files_are_in_the_order_of_the_histories_and_have_the_same_names_each_time(
    spark_stub: SparkSession, tmp_path: Path
) -> None:
    place, heard = StudyDirectory(tmp_path), list[int]()
    spark_job.run(spark_stub, STUDY, place, heard.append)
    assert [*files(place)] == [
        f"histories/part={part:05d}/{number:02d}.parquet" for part in (0, 1) for number in (0, 1)
    ]
    tables = [pq.ParquetFile(tmp_path / name).read() for name in files(place)]
    assert (
        pa.concat_tables(tables).to_pylist() == spark_job.rows(STUDY, list(range(12))).to_pylist()
    )
    assert heard[0] == 0
    assert heard[-1] == 12


def test_an_interrupted_run_leaves_whole_parts_and_goes_on_after_them(
    spark_stub: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, place = StudyDirectory(tmp_path / "whole"), StudyDirectory(tmp_path / "broken")
    spark_job.run(spark_stub, STUDY, whole, lambda _: None)
    write_files, turns = WrittenTable.parquet, iter([False, True])

    def interrupted(table: WrittenTable, path: str) -> None:
        write_files(table, path)
        if next(turns):
            raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(WrittenTable, "parquet", interrupted)
        with pytest.raises(KeyboardInterrupt):
            spark_job.run(spark_stub, STUDY, place, lambda _: None)
    assert list(files(place)) == list(files(whole))[:2]
    assert not place.work.exists()
    heard: list[int] = []
    spark_job.run(spark_stub, STUDY, place, heard.append)
    assert files(place) == files(whole)
    assert heard[0] == 6


def test_half_a_part_of_a_killed_run_is_deleted(spark_stub: SparkSession, tmp_path: Path) -> None:
    place = StudyDirectory(tmp_path)
    (place.work / "0").mkdir(parents=True)
    (place.work / "0" / "part-00000-half.parquet").touch()
    spark_job.run(spark_stub, STUDY, place, lambda _: None)
    assert len(files(place)) == 4
    assert not place.work.exists()


def test_progress_is_reported_while_a_part_is_written(
    spark_stub: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task of three histories has ended: 3 of the first part, and 6 + 3 of the second."""
    reports: list[int] = []
    write_files, expected = WrittenTable.parquet, iter([3, 9])

    def write_slowly(table: WrittenTable, path: str) -> None:
        wanted = next(expected)
        while wanted not in reports:
            threading.Event().wait(0.001)
        write_files(table, path)

    monkeypatch.setattr(WrittenTable, "parquet", write_slowly)
    spark_job.run(spark_stub, STUDY, StudyDirectory(tmp_path), reports.append)
    assert sorted(set(reports)) == [0, 3, 6, 9, 12]


@pytest.mark.spark_suite
@pytest.mark.spark
def test_the_same_seed_gives_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    places = [StudyDirectory(tmp_path / name) for name in ("one", "two")]
    small = replace(STUDY, histories=2)
    for place in places:
        place.claim(small)
        spark_job.run(spark, small, place, lambda _: None)
    one, two = map(files, places)
    assert one == two
    tables = [pq.ParquetFile(tmp_path / "one" / name).read() for name in one]
    assert pa.concat_tables(tables).to_pylist() == spark_job.rows(small, [0, 1]).to_pylist()
