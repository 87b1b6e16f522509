import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from roquet.cli.demo import audit, pipeline
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
    )


@pytest.mark.spark
@pytest.mark.spark_suite
def test_a_stream_that_was_stopped_in_the_middle_ends_with_every_row_once(
    spark: "SparkSession", namesrv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = settings(namesrv, tmp_path)
    half = msgspec.structs.replace(whole, stop_after=30)
    pipeline.follow(pipeline.stream(spark, half), half)
    first = [
        msgspec.json.decode(line, type=RowsWritten)
        for line in capsys.readouterr().out.split("\n")
        if line
    ]
    assert first[-1].rows >= 30
    rest = msgspec.structs.replace(whole, before=first[-1].rows)
    pipeline.follow(pipeline.stream(spark, rest), rest)
    table = spark.read.parquet(whole.table)
    facts = audit.table_facts(table)
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
    assert capsys.readouterr().out == '{"rows":7}\n'
