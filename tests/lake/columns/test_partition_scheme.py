"""Partition schemes: what a user may write, and where each row goes."""

from datetime import UTC, datetime
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from roquet.lake.columns.partition_scheme import (
    DAILY,
    NO_BUCKET,
    Partition,
    PartitionScheme,
    bucket_of,
    murmur3,
    number_within,
    parse_scheme,
    parse_sort,
    place_of,
)
from roquet.lake.columns.partitioning import NO_DAY, schema_of
from roquet.lake.schema import DEFAULT
from roquet.model.errors import ConfigError

SCHEMA = schema_of(("queue_offset", "key", "stored_at"))

BOTH = PartitionScheme(is_hourly=True, bucket_column="key", buckets=16)

MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - UTC below

ROWS = st.lists(st.tuples(st.none() | MOMENTS, st.none() | st.text(max_size=9)))


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("", DAILY),
        ("day", DAILY),
        ("Hour", PartitionScheme(is_hourly=True)),
        ("bucket(key, 16)", PartitionScheme(bucket_column="key", buckets=16)),
        ("day,bucket(key,16)", PartitionScheme(bucket_column="key", buckets=16)),
        ("hour, bucket(key,16)", BOTH),
    ],
)
def test_a_scheme_is_a_time_and_perhaps_a_bucket(text: str, scheme: PartitionScheme) -> None:
    assert parse_scheme(text, DEFAULT) == scheme
    assert parse_scheme(str(scheme), DEFAULT) == scheme


@pytest.mark.parametrize(
    "text", ["month", "day,hour", "key", "bucket(key)", "bucket(key,2),bucket(tag,2)", "bucket(a,b"]
)
def test_another_scheme_is_answered_with_those_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--partition-by .*: day, hour, bucket\(COLUMN,COUNT\)"):
        parse_scheme(text, DEFAULT)


@pytest.mark.parametrize("text", ["bucket(queue_id,4)", "bucket(keys,4)", "bucket(nothing,4)"])
def test_buckets_are_of_text_columns_of_the_table(text: str) -> None:
    with pytest.raises(ConfigError, match="buckets are of a text column: topic, broker, message_i"):
        parse_scheme(text, DEFAULT)


@pytest.mark.parametrize("count", [0, 1, 65, 9999])
def test_there_are_some_buckets_and_not_too_many(count: int) -> None:
    with pytest.raises(ConfigError, match="2 to 64 are possible"):
        parse_scheme(f"bucket(key,{count})", DEFAULT)


def test_rows_are_sorted_by_columns_of_the_table() -> None:
    assert parse_sort((), DEFAULT) == ()
    assert parse_sort(("key", "stored_at"), DEFAULT) == ("key", "stored_at")
    for name in ("keys", "properties"):
        with pytest.raises(ConfigError, match=f"--sort-by {name}: the table has no such column"):
            parse_sort((name,), DEFAULT)
    with pytest.raises(ConfigError, match="did you mean 'key'"):
        parse_sort(("kye",), DEFAULT)


@given(ROWS, st.sampled_from([DAILY, parse_scheme("hour", DEFAULT), BOTH]))
def test_each_row_is_in_its_own_partition_and_no_other(
    rows: list[tuple[datetime | None, str | None]], scheme: PartitionScheme
) -> None:
    columns: dict[str, list[Any]] = {
        "queue_offset": list(range(len(rows))),
        "key": [key for _, key in rows],
        "stored_at": [moment and moment.replace(tzinfo=UTC) for moment, _ in rows],
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=SCHEMA)
    seen = dict[int, Partition]()
    partitions = list[Partition]()
    for partition, part in scheme.split(batch):
        partitions.append(partition)
        assert len(part)
        seen |= dict.fromkeys(part["queue_offset"].to_pylist(), partition)
    assert len(seen) == len(rows)
    assert len(set(partitions)) == len(partitions), "each partition comes once"
    buckets = bucket_of(batch["key"], scheme.buckets) if scheme.buckets else [0] * len(rows)
    for at, (moment, key) in enumerate(rows):
        assert seen[at].day == (str(moment.date()) if moment else NO_DAY)
        if scheme.is_hourly:
            assert number_within(seen[at], "hour") == (moment.hour if moment else None)
        if scheme.buckets:
            assert number_within(seen[at], "key_bucket") == (None if key is None else buckets[at])


@pytest.mark.parametrize(
    "partition",
    [
        Partition("2026-01-31"),
        Partition(NO_DAY),
        Partition("2026-01-31", "hour=5/key_bucket=3"),
        Partition("", "bucket=3"),
    ],
)
def test_a_file_is_found_again_by_its_path(partition: Partition) -> None:
    for root in ("", "s3://lake/orders/data/", "/lake/day=1/x/" if partition.day else "/lake/"):
        assert place_of(f"{root}{partition.path}/a.parquet") == (partition, "a.parquet")


def test_a_file_of_another_writer_has_the_name_of_its_directory() -> None:
    assert place_of("data/kind=x/a.parquet") == (Partition("kind=x"), "a.parquet")
    assert place_of("a.parquet") == (Partition(""), "a.parquet")


TEXTS = st.lists(st.none() | st.text(max_size=20), max_size=8)


def test_the_hash_of_the_specification() -> None:
    assert murmur3(pa.array(["iceberg"])).tolist() == [1210000089]


@given(TEXTS, st.integers(0, 5))
def test_every_hash_is_that_of_the_library(texts: list[str | None], skipped: int) -> None:
    column = pa.array(texts, pa.string()).slice(skipped)
    for text, found in zip(column.to_pylist(), murmur3(column).tolist(), strict=True):
        if text is not None:
            assert found == mmh3.hash(text, signed=False)


@given(TEXTS, st.integers(1, 64))
def test_every_bucket_is_that_of_iceberg(texts: list[str | None], buckets: int) -> None:
    theirs = BucketTransform(buckets).transform(StringType())
    for text, found in zip(texts, bucket_of(pa.array(texts, pa.string()), buckets), strict=True):
        if text != "":  # pyiceberg takes it for a null, the specification does not
            expected = theirs(text)
            assert found == (NO_BUCKET if expected is None else expected)
        else:
            assert found == 0


@pytest.mark.parametrize("column", [pa.array([], pa.string()), pa.nulls(3, pa.string())])
def test_columns_without_bytes_have_buckets(column: pa.Array) -> None:
    assert np.all(bucket_of(column, 4) == NO_BUCKET)
    assert len(bucket_of(column, 4)) == len(column)
