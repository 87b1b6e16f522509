"""Property columns equal what `wire` decodes text by text."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow import properties
from roquet.arrow.properties import PropertyColumns
from roquet.wire.records import speedups
from roquet.wire.records.property_text import decode_properties, encode_properties

pytestmark = pytest.mark.usefixtures("form")

words = st.text(st.sampled_from("abKEYS é中😀"), min_size=1, max_size=5)
even = st.dictionaries(words, words, max_size=4).map(encode_properties)
odd = st.lists(st.sampled_from([b"a", b"b", b"\x01", b"\x02", b"\xff", b"\xed\xa0\xbd"])).map(
    b"".join
)


def oracle(text: bytes) -> dict[str, str]:
    return decode_properties(str(text, "utf-8", "replace"))


def assert_equals_wire(texts: list[bytes]) -> None:
    expected = [oracle(text) for text in texts]
    columns = PropertyColumns.parse(pa.array(texts, pa.binary()))
    assert len(columns) == len(texts)
    assert [dict(row) for row in columns.as_map().to_pylist()] == expected
    for name in {name for row in expected for name in row} | {"absent"}:
        assert columns.column(name).to_pylist() == [row.get(name) for row in expected]


@given(st.lists(even, max_size=8))
def test_even_texts_are_read_without_a_loop(texts: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            properties, "decode_properties", lambda text: pytest.fail("the loop was used")
        )
        assert_equals_wire(texts)


@given(st.lists(st.one_of(even, odd), max_size=6))
def test_odd_texts_are_read_as_the_loop_reads_them(texts: list[bytes]) -> None:
    assert_equals_wire(texts)


@pytest.mark.parametrize(
    "text",
    [
        b"a\x01b",
        b"\x01b\x02",
        b"a\x01\x02",
        b"ab\x02cd\x01e\x02",
        b"a\x01b\x02a\x01c\x02",
        b"a\x01b\x01c\x02",
        b"a\x01\xff\x02",
        b"\x02",
    ],
)
def test_one_odd_text_among_even_ones(text: bytes) -> None:
    assert_equals_wire([b"x\x01y\x02", text, b"", b"z\x01\xc3\xa9\x02"])


def test_a_slice_of_a_column_is_read_alone() -> None:
    texts = pa.array([b"a\x01b\x02", b"c\x01d\x02", b"", b"e\x01f\x02"], pa.binary()).slice(1, 2)
    assert PropertyColumns.parse(texts).as_map().to_pylist() == [[("c", "d")], []]


def test_the_map_has_the_type_of_spark() -> None:
    map_column = PropertyColumns.parse(pa.array([b"a\x01b\x02"], pa.binary())).as_map()
    assert map_column.type == pa.map_(pa.string(), pa.string())


@pytest.mark.skipif(not speedups.COMPILED, reason="needs the compiled forms: make install")
@pytest.mark.parametrize(
    "edges", [[0, -9, 8], [-4, 4, 8], [0, 9, 8], [8, 4, 0], [0, 2**31 - 1, 8], [4, 8, 0, 8]]
)
def test_no_byte_is_read_beyond_the_texts_of_a_column(edges: list[int]) -> None:
    """Nor do texts that overlap outgrow the room for their parts."""
    offsets = np.array([0, *[4] * (len(edges) - 2), 8], np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"a\x01b\x02" * 2)]
    column = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
    offsets[:] = edges
    fast: Any = speedups.extension
    with pytest.raises(ValueError, match="values beyond its data"):
        fast.split_texts(column)


def test_memory_behind_names_and_values_is_zeros() -> None:
    texts = pa.array([b"name\x01value\x02"] * 50, pa.binary())
    parts = properties.split_texts(texts)
    assert parts is not None
    for edges, data in parts[1:]:
        end = int(np.frombuffer(edges, np.int32)[-1])
        assert not bytes(data)[end:].strip(b"\0")
