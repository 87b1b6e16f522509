import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest

from roquet.cli.demo import pipeline
from roquet.cli.demo.pipeline import PipelineSettings, RowsWritten
from roquet.client import blocking
from roquet.model.message import Message
from roquet.testing.cluster import BlockingCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHT = {"tailnum": "N1", "carrier": "UA", "hour": 5, "origin": "EWR", "dest": "IAH"}


def flight(row: int) -> Message:
    return Message(
        "flights",
        json.dumps({**FLIGHT, "hour": row % 24, "dep_delay": None}).encode(),
        tag="UA",
        keys=("N1",),
        order_key="N1",
        properties={"row": str(row)},
    )


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(brokers=2) as cluster:
        with blocking.Producer(cluster.namesrv_addr) as producer:
            producer.send_many(flight(row) for row in range(100))
        yield cluster.namesrv_addr


def settings(namesrv: str, directory: Path) -> PipelineSettings:
    return PipelineSettings(
        namesrv=namesrv,
        topic="flights",
        table=str(directory / "table"),
        checkpoint=str(directory / "checkpoint"),
        flights=100,
        facts=str(directory / "facts.json"),
    )


@pytest.mark.spark
@pytest.mark.spark_suite
def test_a_stream_that_was_stopped_in_the_middle_ends_with_every_row_once(
    spark: "SparkSession", namesrv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = settings(namesrv, tmp_path)
    rows = pipeline.rows_to_write(spark, whole)
    written = pipeline.follow(pipeline.start(rows, whole), 0, 30)
    lines = [
        msgspec.json.decode(line, type=RowsWritten)
        for line in capsys.readouterr().out.split("\n")
        if line
    ]
    assert lines[-1] == RowsWritten(written, stopped=True)
    assert 30 <= written < 100
    assert pipeline.follow(pipeline.start(rows, whole), written) == 100
    table = spark.read.parquet(whole.table)
    facts = pipeline.table_facts(table.toArrow())
    assert (facts.rows, facts.distinct, facts.gaps, facts.disordered) == (100, 100, 0, 0)
    assert tuple(table.columns) == pipeline.COLUMNS


@pytest.mark.spark
@pytest.mark.spark_suite
def test_a_flights_json_becomes_columns(spark: "SparkSession") -> None:
    body = json.dumps({**FLIGHT, "dep_delay": -2}).encode()
    line = ("broker-a", 1, 7, "id", bytearray(body), {"row": "42"}, None)
    messages = spark.createDataFrame(
        [line],
        "broker string, queue_id int, queue_offset bigint, message_id string, body binary, "
        "properties map<string,string>, stored_at timestamp",
    )
    (row,) = pipeline.transform(messages).collect()
    assert (row.row, row.carrier, row.hour, row.dep_delay) == (42, "UA", 5, -2)


def test_settings_travel_on_a_command_line() -> None:
    sent = settings("127.0.0.1:9876", Path("/somewhere"))
    assert msgspec.json.decode(msgspec.json.encode(sent), type=PipelineSettings) == sent


def test_progress_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.say(RowsWritten(7))
    assert capsys.readouterr().out == '{"rows":7,"stopped":false}\n'


class ScriptedQuery:
    """A stream that writes ten rows between two looks, and ends after three of them."""

    def __init__(self) -> None:
        self.recentProgress: list[Any] = []
        self.is_stopped = False

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802 - as above
        self.recentProgress.append(mock.Mock(numInputRows=10))
        return len(self.recentProgress) == 3

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("stop_at", "reported"),
    [
        (None, [(15, False), (25, False), (35, False)]),
        (20, [(15, False), (25, True)]),
        (35, [(15, False), (25, False), (35, True)]),
    ],
)
def test_a_stream_is_followed_to_its_end_or_stopped_at_a_number_of_rows(
    stop_at: int | None,
    reported: Sequence[tuple[int, bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    query: Any = ScriptedQuery()
    assert pipeline.follow(query, 5, stop_at) == reported[-1][0]
    lines = capsys.readouterr().out.splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == reported
    assert query.is_stopped == reported[-1][1]


def test_a_run_whose_parent_is_gone_starts_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = mock.MagicMock()
    monkeypatch.setattr("roquet.spark.session.session", lambda *_, **__: spark)
    monkeypatch.setattr(pipeline, "rows_to_write", lambda *_: None)
    monkeypatch.setattr(pipeline, "start", mock.Mock(side_effect=AssertionError))
    pipeline.run(settings("127.0.0.1:1", tmp_path), io.StringIO())
    spark.stop.assert_called_once_with()


Row = tuple[str, int, int, int, str | None, str, int]

GOOD: Sequence[Row] = (
    ("broker-a", 0, 0, 0, "N1", "UA", 5),
    ("broker-a", 0, 1, 2, "N1", "UA", 6),
    ("broker-b", 0, 0, 1, "N2", "AA", 5),
    ("broker-b", 0, 1, 3, None, "AA", 5),
)


SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("row", pa.int64()),
        ("tailnum", pa.string()),
        ("carrier", pa.string()),
        ("hour", pa.int32()),
    ]
)


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (GOOD, (4, 4, 0, 0)),
        ([*GOOD, GOOD[0]], (5, 4, 0, 0)),
        (GOOD[1:], (3, 3, 1, 0)),
        ([GOOD[0], ("broker-a", 0, 4, 9, "N1", "UA", 7)], (2, 2, 3, 0)),
        ([], (0, 0, 0, 0)),
    ],
)
def test_rows_gaps_and_disorder_are_counted(rows: Sequence[Row], counts: tuple[int, ...]) -> None:
    facts = pipeline.table_facts(table(rows))
    assert (facts.rows, facts.distinct, facts.gaps, facts.disordered) == counts
    if rows is GOOD:
        assert facts.carriers == {"UA": {5: 1, 6: 1}, "AA": {5: 2}}


@pytest.mark.parametrize(
    ("first", "second", "disordered"),
    [
        (("broker-a", 0, 0, 2, "N1", "UA", 5), ("broker-a", 0, 1, 0, "N1", "UA", 6), 1),
        (("broker-a", 0, 0, 0, "N1", "UA", 5), ("broker-a", 1, 0, 2, "N1", "UA", 6), 1),
        (("broker-a", 0, 0, 2, None, "UA", 5), ("broker-b", 1, 0, 0, None, "UA", 6), 0),
    ],
    ids=["out of order", "in two queues", "without an aircraft"],
)
def test_an_aircraft_has_its_flights_in_one_queue_in_order(
    first: Row, second: Row, disordered: int
) -> None:
    assert pipeline.disordered_aircraft(table([first, second])) == disordered
