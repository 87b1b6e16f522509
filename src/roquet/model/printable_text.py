"""Printable text: foreign text without anything that a terminal, log or page would interpret.

Names, keys, bodies, tags, addresses and remarks come from anybody who can reach a broker. Every
place that shows them to people escapes them with `printable`; JSON for programs goes through
`json_printable`, which keeps the value and changes only its notation.
"""

from typing import Final
from unicodedata import category

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_SPACE: Final = "Zs"
"""Category of spaces, which are not escaped: U+3000 is usual in Chinese and Japanese."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Escape every character that does not print, as `\x1b`.

    Escaped are control characters (C0, DEL, C1), line and paragraph separators, formatting
    characters (U+202E and other bidirectional ones, zero width ones), lone surrogates, private and
    unassigned characters. Characters in `keep`, such as `"\n\t"`, stay.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char in keep or not _is_special(char) else _SHORT.get(char) or _escape(char)
        for char in text
    )


def json_printable(text: str) -> str:
    r"""Escape characters of JSON strings that do not print, as `\u202e`; the values stay equal.

    JSON writers escape control characters below U+0020 only. Line breaks and tabs between values
    stay.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or not _is_special(char) else json_escape(char) for char in text
    )


def quantity(count: int, noun: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size_text(count: int) -> str:
    """Bytes with a unit: `512 bytes`, `1.5 KiB`."""
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{count:,} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


def without_surrogates(value: object) -> object:
    """Replace lone surrogates by U+FFFD in a value of dicts, lists and strings, as UTF-8 needs."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


def _is_special(char: str) -> bool:
    return not char.isprintable() and category(char) != _SPACE


def _escape(char: str) -> str:
    number = ord(char)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def json_escape(char: str) -> str:
    r"""A character as JSON writes it in ASCII: `\u20ac`, or two such units."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
