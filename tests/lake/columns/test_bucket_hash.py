"""Bucket hash: that of Iceberg's specification, and of the library that has it, too."""

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from roquet.lake.columns.bucket_hash import NO_BUCKET, bucket_of, murmur3

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
