from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.wire.java_hash import hash_code

LINES = vector_lines("hash-codes.jsonl")


@for_each(LINES)
def test_a_texts_hash_is_javas(line: dict[str, Any]) -> None:
    assert hash_code(line["in"]) == line["out"]


def by_the_book(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


@given(st.text(st.characters(codec=None), max_size=600))
def test_any_text_hashes_as_the_definition_says(text: str) -> None:
    assert hash_code(text) == by_the_book(text)


@pytest.mark.parametrize("length", [511, 512, 513, 1024, 1025, 5000])
@pytest.mark.parametrize("letter", ["z", "é", "\U0001f600"])
def test_long_texts_hash_in_pieces(length: int, letter: str) -> None:
    assert hash_code(letter * length) == by_the_book(letter * length)
