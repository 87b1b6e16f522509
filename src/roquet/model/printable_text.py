"""Printable text: strangers' text with nothing left in it that a terminal, log or page would obey.

Names, keys, bodies, tags, addresses and remarks come from whoever can reach a broker. Every place
that shows them to people escapes them with `printable`; JSON for programs goes through
`json_printable`, which keeps the value and changes how it is written.
"""

from typing import Final
from unicodedata import category

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_SPACE: Final = "Zs"
"""Spaces of other widths are no control characters: U+3000 is usual in Chinese and Japanese."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Text in which every character that does not print is written as an escape, as `\x1b`.

    Escaped are control characters (C0, DEL, C1), line and paragraph separators, formatting
    characters (U+202E and other bidirectional ones, zero width ones), lone surrogates, private and
    unassigned characters. Those in `keep`, as `"\n\t"`, stay.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one in keep or not _is_obeyed(one) else _SHORT.get(one) or _escape(one)
        for one in text
    )


def json_printable(text: str) -> str:
    r"""JSON whose strings escape what does not print: `\u202e`; the values stay the same.

    JSON writers escape control characters below U+0020 alone. Line breaks and tabs between values
    stay.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one in "\n\t" or not _is_obeyed(one) else _json_escape(one) for one in text
    )


def without_surrogates(value: object) -> object:
    """A value of dicts, lists and strings in which lone surrogates are U+FFFD, as UTF-8 needs."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


def _is_obeyed(one: str) -> bool:
    return not one.isprintable() and category(one) != _SPACE


def _escape(one: str) -> str:
    number = ord(one)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(one: str) -> str:
    data = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
