"""Columns cut from bytes."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow.column_slices import bytes_of, fixed_width_texts, offsets_of, slice_column


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=16))
def test_slices_are_the_bytes_between_their_edges(block: bytes, edges: list[int]) -> None:
    edges = sorted(min(edge, len(block)) for edge in edges)
    starts, ends = edges[0:-1:2], edges[1::2]
    column = slice_column(block, np.array(starts, np.int64), np.array(ends, np.int64), pa.binary())
    assert column.to_pylist() == [block[a:b] for a, b in zip(starts, ends, strict=True)]


@given(st.lists(st.binary(max_size=9), min_size=1), st.integers(0, 3))
def test_offsets_and_bytes_of_a_column_show_its_values(values: list[bytes], skip: int) -> None:
    column = pa.array(values, pa.binary()).slice(skip)
    offsets, data = offsets_of(column), bytes_of(column)
    found = [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    assert found == values[skip:]


def test_rows_of_a_matrix_are_texts() -> None:
    rows = np.frombuffer(b"abcdef", np.uint8).reshape(3, 2)
    assert fixed_width_texts(rows).to_pylist() == ["ab", "cd", "ef"]
