"""Tagged: which entries of a queue have one of some tag codes, found without unpacking them.

    entries   │ position │ size │   code   │ position │ size │   code   │ …
    words     │ 0 │  1   │  2   │ 3 │ *4*  │ 0 │  1   │  2   │ 3 │ *4*  │ …
    column                           └─────────────────────────┴── searched as bytes

A tag's code is a number of 32 bits, so the low word tells nearly all of it. Words are copied as
they lie there, which is a tenth of what it costs to make numbers of them.
"""

import sys
from functools import lru_cache
from itertools import compress
from typing import Final

from roquet.store.layout import ENTRY_SIZE

WORD_SIZE: Final = 4
WORDS: Final = ENTRY_SIZE // WORD_SIZE
WORD_AT: Final = WORDS - 1
"""The last word of an entry: the low half of its code."""

SEARCHED_MAX: Final = 8
"""Codes that are searched one after the other; for more it is cheaper to look at each entry."""


SETS_MAX: Final = 1_024
"""Sets of codes that are remembered: a group has one or few."""


def find_tagged(entries: memoryview, codes: frozenset[int]) -> list[int]:
    """The numbers of those entries, from 0, whose code has the low word of one of these codes.

    The caller has to look whether it is the same code: others may have the same low word.
    """
    words = _words(codes)
    column = entries.cast("I")[WORD_AT::WORDS]
    if len(words) > SEARCHED_MAX:
        picks = map(words.__contains__, column.tolist())
        return list(compress(range(len(column)), picks))
    text = column.tobytes()
    found = [at for word in words.values() for at in _places(text, word)]
    if len(words) > 1:
        found.sort()
    return found


@lru_cache(SETS_MAX)
def _words(codes: frozenset[int]) -> dict[int, bytes]:
    """The low words of codes, as numbers of this machine and as they are stored."""
    stored = {(code & 0xFFFF_FFFF).to_bytes(WORD_SIZE, "big") for code in codes}
    return {int.from_bytes(word, sys.byteorder): word for word in stored}


def _places(text: bytes, word: bytes) -> list[int]:
    """Which words of a text are this one."""
    found = []
    find, at = text.find, text.find(word)
    while at >= 0:
        if at % WORD_SIZE == 0:
            found.append(at // WORD_SIZE)
        at = find(word, at + 1)  # one that is not in its place may reach into one that is
    return found
