r"""Batch shape: whether the property texts of a batch differ only in their keys. Pure.

Then the facts of one text hold for all. They are compared in a few steps over one joined text, in a
tenth of the time of reading each:

    UNIQ_KEY \x01 7F00…01 \x02 TAGS \x01 red \x02 \0 UNIQ_KEY \x01 7F00…02 \x02 TAGS …
                  └ any ─┘                            one end for each text
"""

import re
from collections.abc import Sequence
from typing import Final

from roquet.model import properties as names

BATCH_MIN: Final = 8
"""Texts from which on comparing all at once costs less than reading each."""

SIZE_MAX: Final = 512
"""Bytes of a text: compiled patterns are cached, and longer texts are seldom repeated."""

_END: Final = b"\0"

_KEYS: Final = (names.UNIQUE_KEY, names.KEYS, names.SINK_ROW)
_KEYED: Final = re.compile(
    b"((?:\\A|(?<=\x02))(?:%b)\x01)[^\x01\x02]+(?=\x02)" % "|".join(_KEYS).encode()
)
"""A property whose value differs from message to message and means nothing to the broker."""

_ANY: Final = b"[^\x02]++"
"""Such a value. It might contain U+0001 or a zero byte: those are counted."""


def have_one_shape(texts: Sequence[bytes]) -> bool:
    """Whether all texts are ASCII and differ from the first only in the values of keys."""
    first, count = texts[0], len(texts)
    if count < BATCH_MIN or len(first) > SIZE_MAX or _form(texts[-1]) != (form := _form(first)):
        return False
    joined = _END.join(texts) + _END
    return (
        joined.isascii()
        and joined.count(_END) == count
        and joined.count(b"\x01") == count * first.count(b"\x01")
        and re.compile(b"(?:%b\0)*+" % form).fullmatch(joined) is not None
    )


def _form(text: bytes) -> bytes:
    """A pattern that matches the text and those that differ only in keys."""
    literals = _KEYED.split(text)
    # Every second part is the beginning of a key's property.
    return b"".join(
        [
            re.escape(piece) + _ANY if place % 2 else re.escape(piece)
            for place, piece in enumerate(literals)
        ]
    )
