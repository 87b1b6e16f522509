"""Columns cut from bytes."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow.column_slices import (
    binary_column,
    bytes_of,
    contains,
    cut_slices,
    fixed_width_texts,
    offsets_of,
    slice_column,
)
from roquet.wire.records import speedups

pytestmark = pytest.mark.usefixtures("form")


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=16))
def test_slices_are_the_bytes_between_their_edges(block: bytes, edges: list[int]) -> None:
    edges = sorted(min(edge, len(block)) for edge in edges)
    starts, ends = edges[0:-1:2], edges[1::2]
    column = slice_column(block, np.array(starts, np.int64), np.array(ends, np.int64), pa.binary())
    assert column.to_pylist() == [block[a:b] for a, b in zip(starts, ends, strict=True)]


@given(st.text("ab", max_size=3_000), st.text("ab", max_size=6))
def test_a_text_is_found_wherever_it_is(data: str, wanted: str) -> None:
    view = memoryview(data.encode())
    assert contains(view, wanted.encode()) is (wanted in data)
    assert contains(view, (data[-5:] or "a").encode()) is bool(data)


@given(st.lists(st.binary(max_size=9), min_size=1), st.integers(0, 3))
def test_offsets_and_bytes_of_a_column_show_its_values(values: list[bytes], skip: int) -> None:
    column = pa.array(values, pa.binary()).slice(skip)
    offsets, data = offsets_of(column), bytes_of(column)
    slices = [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    assert slices == values[skip:]


def test_rows_of_a_matrix_are_texts() -> None:
    rows = np.frombuffer(b"abcdef", np.uint8).reshape(3, 2)
    assert fixed_width_texts(rows).to_pylist() == ["ab", "cd", "ef"]


def test_offsets_and_bytes_are_a_column() -> None:
    column = pa.array([b"a", b"", "é".encode()], pa.binary())
    for buffers in (
        (offsets_of(column), bytes_of(column)),
        (offsets_of(column).tobytes(), bytes_of(column).tobytes()),
    ):
        assert binary_column(buffers, 3, pa.binary()).equals(column)
        assert binary_column(buffers, 3, pa.string()).to_pylist() == ["a", "", "é"]


def test_edges_may_be_every_other_item_of_an_array() -> None:
    edges = np.array([1, 2, 4, 6])
    for block in (b"abcdef", memoryview(b"abcdef"), np.frombuffer(b"abcdef", np.uint8)):
        column = slice_column(block, edges[0::2], edges[1::2], pa.string())
        assert column.to_pylist() == ["b", "ef"]


def test_edges_may_be_short_numbers() -> None:
    starts: Any = np.array([0, 3], np.int32)
    ends: Any = np.array([1, 3], np.int32)
    assert slice_column(b"abc", starts, ends, pa.binary()).to_pylist() == [b"a", b""]


@pytest.mark.parametrize(
    ("starts", "ends"), [([2], [1]), ([-1], [1]), ([0], [4]), ([0, 3], [1, 2**40]), ([2**40], [0])]
)
def test_a_slice_outside_of_the_block_is_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match="a slice is not inside its block"):
        cut_slices(b"abc", np.array(starts), np.array(ends))


def test_edges_may_be_at_any_address() -> None:
    edges = np.zeros(2, [("odd", "u1"), ("start", "i8"), ("end", "i8")])
    edges["start"], edges["end"] = [1, 4], [2, 6]
    column = slice_column(b"abcdef", edges["start"], edges["end"], pa.binary())
    assert column.to_pylist() == [b"b", b"ef"]


@pytest.mark.skipif(not speedups.COMPILED, reason="needs the compiled forms: make install")
def test_an_array_that_only_claims_to_be_of_numbers_is_not_read() -> None:
    class Claims(np.ndarray[Any, Any]):
        dtype = np.dtype(np.int64)

    short: Any = np.zeros(4, np.uint8).view(Claims)
    extension = speedups.extension
    assert extension is not None
    assert extension.cut_slices(b"abc", short, short) is NotImplemented
