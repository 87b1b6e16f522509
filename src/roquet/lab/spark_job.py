"""Spark job: simulates the histories of a study on Spark, as a function over Arrow batches.

    spark.range(histories) ──▶ mapInArrow(simulate) ──▶ Parquet, part by part ──▶ summary

A part is written beside the table and moved into it as a whole; a later run skips finished parts.
"""

import threading
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from roquet.lab.measures import HistoryMeasures
from roquet.lab.simulate import mode_of, simulate_many
from roquet.lab.study import Study, StudyDirectory
from roquet.lab.timeline import draw_timeline, seed_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

CHUNK_HISTORIES: Final = 250
"""Histories that are computed together; more are not faster."""

CHUNK_MESSAGES: Final = 250_000
"""Messages of histories that are computed together: 100 MB of a worker's memory."""

PROGRESS_PERIOD_S: Final = 0.5
"""How often progress is reported."""

_TYPES: Final[dict[object, pa.DataType]] = {int: pa.int64(), float: pa.float64(), str: pa.string()}


def _schema() -> pa.Schema:
    hints = typing.get_type_hints(HistoryMeasures)
    return pa.schema([(name, _type_of(hints[name])) for name in HistoryMeasures.__struct_fields__])


def _type_of(hint: Any) -> pa.DataType:
    plain = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    return _TYPES[plain]


SCHEMA: Final = _schema()


def table(spark: "SparkSession", study: Study, numbers: range) -> "DataFrame":
    """One row for each of these histories, scenario and strategy."""
    from pyspark.sql.pandas.types import from_arrow_schema

    partitions = -(-len(numbers) // study.partition_size)
    histories = spark.range(numbers.start, numbers.stop, 1, partitions)
    return histories.mapInArrow(simulator(study), from_arrow_schema(SCHEMA))


def simulator(study: Study) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function over batches of history numbers that a worker runs."""

    def played(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        most = max(scenario.messages for scenario in study.scenarios)
        size = max(1, min(CHUNK_HISTORIES, CHUNK_MESSAGES // most))
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            for first in range(0, len(numbers), size):
                yield rows(study, numbers[first : first + size])

    return played


def rows(study: Study, numbers: list[int]) -> pa.RecordBatch:
    """Simulate histories under all strategies: rows by history, then scenario, then strategy."""
    blocks: list[pa.RecordBatch] = []
    for scenario in study.scenarios:
        timelines = [draw_timeline(scenario, seed_of(study.seed, number)) for number in numbers]
        for name in study.strategies:
            columns = {
                "scenario": [scenario.name] * len(numbers),
                "history": numbers,
                "strategy": [name] * len(numbers),
                "mode": [mode_of(name)] * len(numbers),
                **simulate_many(scenario, name, timelines),
            }
            blocks.append(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
    order = np.arange(len(blocks) * len(numbers)).reshape(len(blocks), -1).T.ravel()
    return pa.Table.from_batches(blocks).take(pa.array(order)).combine_chunks().to_batches()[0]


def run(
    spark: "SparkSession", study: Study, directory: StudyDirectory, progress: Callable[[int], None]
) -> None:
    """Simulate the missing parts; `progress` is called with the number of finished histories."""
    parts = study.parts()
    missing = directory.missing(study)
    done = sum(len(part) for number, part in enumerate(parts) if number not in missing)
    progress(done)
    directory.clear()  # of a run that was killed
    try:
        for number in missing:
            fresh = directory.work / str(number)
            with _ProgressThread(spark.sparkContext, done, study.partition_size, progress):
                table(spark, study, parts[number]).write.parquet(str(fresh))
            _normalize_files(fresh)
            directory.table.mkdir(exist_ok=True)
            fresh.rename(directory.part(number))
            done += len(parts[number])
            progress(done)
    finally:
        directory.clear()


def _normalize_files(directory: Path) -> None:
    """Keep the files in the order of the histories, and give them reproducible names."""
    files = sorted(directory.glob("part-*.parquet"))
    for file in directory.iterdir():
        if file not in files:
            file.unlink()
    for number, file in enumerate(files):
        file.rename(directory / f"{number:02d}.parquet")


class _ProgressThread:
    """A thread that reports the finished tasks of the running Spark job."""

    def __init__(
        self, context: "SparkContext", done: int, size: int, progress: Callable[[int], None]
    ) -> None:
        self._context, self._done, self._size, self._progress = context, done, size, progress
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._report_progress, daemon=True)

    def __enter__(self) -> None:
        self._context.setJobGroup("roquet lab", "histories", interruptOnCancel=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _report_progress(self) -> None:
        tracker = self._context.statusTracker()
        while not self._is_over.wait(PROGRESS_PERIOD_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            tasks = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            self._progress(self._done + tasks * self._size)
