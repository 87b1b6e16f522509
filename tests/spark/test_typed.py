"""Bodies become typed columns, and errors name what is wrong."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from roquet.lake.columns.body_schemas import BodySchema
from roquet.model.errors import ConfigError, UsageError
from roquet.spark.typed import fields_of, parse_batches, read_json, typed

BODIES = ['{"id": 1, "sum": 9}', "{oops", '{"id": "x", "sum": 5}', "", '{"id": 4, "more": 1}']


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    rows = [(at, bytearray(body.encode())) for at, body in enumerate(BODIES)]
    return spark.createDataFrame(rows, "queue_offset bigint, body binary")


@pytest.mark.spark_suite
def test_every_mode(frame: DataFrame) -> None:
    typed_frame = typed(frame, "id int, sum int")
    assert typed_frame.columns == ["queue_offset", "id", "sum"]
    assert [tuple(row) for row in typed_frame.collect()] == [
        (0, 1, 9), (1, None, None), (2, None, 5), (3, None, None), (4, 4, None),
    ]  # fmt: skip
    whole = typed(frame, "id int, sum int", mode="dropmalformed")
    assert [tuple(row) for row in whole.collect()] == [(0, 1, 9), (4, 4, None)]
    kept = typed(frame, "id int, _corrupt_record string", into="value").collect()
    assert [row.value["_corrupt_record"] for row in kept[:3]] == [None, "{oops", BODIES[2]]
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        typed(frame, "id int, sum int", mode="failfast").collect()


def test_a_schema_in_each_of_its_forms(spark: SparkSession) -> None:
    wanted = StructType([StructField("id", LongType()), StructField("n", IntegerType())])
    assert fields_of(wanted) == wanted
    assert fields_of(wanted.json()) == wanted
    assert fields_of(" id long, n int ") == wanted


@pytest.mark.parametrize("schema", ["id lonk", "{", '{"type": "struct"}', "", "int"])
def test_a_schema_that_is_none_is_named(spark: SparkSession, schema: str) -> None:
    with pytest.raises(ConfigError, match="bodySchema: "):
        fields_of(schema)


def test_field_names_that_are_message_columns_are_an_error(frame: DataFrame) -> None:
    with pytest.raises(ConfigError, match="field 'Queue_Offset' is a column of the message, too"):
        typed(frame, "Queue_Offset int")
    assert typed(frame, "queue_offset int", into="value").columns == ["queue_offset", "value"]
    with pytest.raises(ConfigError, match="no column 'body'"):
        typed(frame.drop("body"), "id int")


def test_other_mistakes_are_named(frame: DataFrame) -> None:
    mode: Any = "permisive"
    with pytest.raises(ConfigError, match="did you mean 'permissive'"):
        typed(frame, "id int", mode=mode)
    spark = frame.sparkSession
    with pytest.raises(ConfigError, match="the bodies need a schema"):
        read_json(spark, {"topic": "t"})
    with pytest.raises(ConfigError, match="bodyFormat: 'avro' is not json"):
        read_json(spark, {"topic": "t", "bodyFormat": "avro"}, "id int")


def test_the_schema_may_be_an_option(spark: SparkSession) -> None:
    options = {
        "namesrv": "nowhere:1", "topic": "t", "columns": "key,body",
        "bodyFormat": "json", "bodySchema": "id long",
    }  # fmt: skip
    assert read_json(spark, options).columns == ["key", "id"]
    assert read_json(spark, options, stream=True).isStreaming


AVRO = BodySchema(
    format="avro",
    text='{"type": "record", "name": "O", "fields": [{"name": "id", "type": "int"}]}',
)
AVRO_ROWS = pa.RecordBatch.from_pydict(
    {"tag": ["a", "b", "c"], "body": pa.array([b"\x02", b"no record", b"\x04"], pa.binary())}
)


def test_avro_bodies_are_parsed_by_a_schema_file() -> None:
    pytest.importorskip("fastavro", reason="pip install 'roquet[avro]'")
    [rows] = parse_batches([AVRO_ROWS], source=AVRO, mode="permissive", into=None)
    assert rows.to_pydict() == {"tag": ["a", "b", "c"], "id": [1, None, 2]}
    [rows] = parse_batches([AVRO_ROWS], source=AVRO, mode="dropmalformed", into="value")
    assert rows.to_pydict() == {"tag": ["a", "c"], "value": [{"id": 1}, {"id": 2}]}
    with pytest.raises(UsageError, match="does not parse: no Avro record"):
        list(parse_batches([AVRO_ROWS], source=AVRO, mode="failfast", into=None))


@pytest.mark.spark_suite
def test_spark_has_the_fields_of_avro_bodies(spark: SparkSession) -> None:
    pytest.importorskip("fastavro", reason="pip install 'roquet[avro]'")
    frame = spark.createDataFrame([("a", bytearray(b"\x02"))], "tag string, body binary")
    for into, expected in ((None, ("a", 1)), ("value", ("a", (1,)))):
        assert [tuple(row) for row in typed(frame, AVRO, into=into).collect()] == [expected]
