"""Keys are spread over buckets, each key always to the same one."""

from zlib import crc32

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.states.buckets import NO_KEY, KeyBuckets


def rows(keys: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": pa.array(keys, pa.string()), "row": list(range(len(keys)))}
    )


@given(st.lists(st.none() | st.text(max_size=5)), st.integers(1, 9))
def test_every_row_is_in_the_bucket_of_its_key(keys: list[str | None], buckets: int) -> None:
    parts = {place.within: part for place, part in KeyBuckets(count=buckets).split(rows(keys))}
    placed = [
        (row["row"], row["key"], bucket)
        for bucket, part in parts.items()
        for row in part.to_pylist()
    ]
    assert sorted((at, key) for at, key, _ in placed) == list(enumerate(keys))
    for _, key, bucket in placed:
        assert bucket == (NO_KEY if key is None else f"bucket={crc32(key.encode()) % buckets}")


def test_rows_of_a_bucket_keep_their_order() -> None:
    [(_, part)] = KeyBuckets(count=1).split(rows(["b", "a", "b"]))
    assert part["row"].to_pylist() == [0, 1, 2]
