"""Tag search: finds the entries of a queue that have one of some tag codes, without unpacking them.

    entries   │ position │ size │   code   │ position │ size │   code   │ …
    words     │ 0 │  1   │  2   │ 3 │ *4*  │ 0 │  1   │  2   │ 3 │ *4*  │ …
    column                           └─────────────────────────┴── searched as bytes

A tag code is a number of 32 bits, so its low word nearly identifies it. Words are copied as they
are stored, at a tenth of the cost of converting them to numbers.
"""

import sys
from functools import lru_cache
from itertools import compress
from typing import Final

from roquet.store.layout import ENTRY_SIZE

WORD_SIZE: Final = 4
WORDS: Final = ENTRY_SIZE // WORD_SIZE
WORD_AT: Final = WORDS - 1
"""The index of the last word of an entry: the low half of its code."""

SEARCHED_MAX: Final = 8
"""Codes that are searched one after the other; with more it is cheaper to test each entry."""


SETS_MAX: Final = 1_024
"""Sets of codes whose words are cached: a group has one or few."""


def find_tagged(entries: memoryview, codes: frozenset[int]) -> list[int]:
    """The numbers of the entries, from 0, whose code has the low word of one of these codes.

    The caller has to compare the whole code: others may have the same low word.
    """
    words = _words(codes)
    column = entries.cast("I")[WORD_AT::WORDS]
    if len(words) > SEARCHED_MAX:
        picks = map(words.__contains__, column.tolist())
        return list(compress(range(len(column)), picks))
    text = column.tobytes()
    numbers = [at for word in words.values() for at in _places(text, word)]
    if len(words) > 1:
        numbers.sort()
    return numbers


@lru_cache(SETS_MAX)
def _words(codes: frozenset[int]) -> dict[int, bytes]:
    """The low words of codes, as this machine's numbers and as stored."""
    stored = {(code & 0xFFFF_FFFF).to_bytes(WORD_SIZE, "big") for code in codes}
    return {int.from_bytes(word, sys.byteorder): word for word in stored}


def _places(text: bytes, word: bytes) -> list[int]:
    """The numbers of the words in a text that equal this one."""
    numbers = []
    find, at = text.find, text.find(word)
    while at >= 0:
        if at % WORD_SIZE == 0:
            numbers.append(at // WORD_SIZE)
        at = find(word, at + 1)  # a match across two words may overlap an aligned one
    return numbers
