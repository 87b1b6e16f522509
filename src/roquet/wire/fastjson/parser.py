r"""Parser of Java's JSON dialect, into plain values.

    {0:"10.0.0.1:10911"}                                       numbers as keys
    {{"brokerName":"a","queueId":0,"topic":"t"}:{"offset":5}}   objects as keys

It also reads standard JSON, but more slowly than a standard parser.
"""

import re
from collections.abc import Mapping
from json import JSONDecoder
from types import MappingProxyType
from typing import Final

from roquet.model.errors import FieldError

NESTING_MAX: Final = 64
"""No body of the protocol is ten levels deep; each level costs a few frames of Python's stack."""

_read_string: Final = JSONDecoder(strict=False).raw_decode
"""Accepts raw control characters, and lone surrogates, which Java's strings can hold."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_CONSTANTS: Final[Mapping[str, bool | None]] = MappingProxyType(
    {"true": True, "false": False, "null": None}
)
_BARE_KEY: Final = re.compile(
    r"""
    "(?:[^"\\]++|\\.?)*+"?                             # a text, closed or not: never tried again
    | (?<=[{,])[ \t\r\n]*+(-?[0-9]++)(?=[ \t\r\n]*+:)  # a number where a key begins
    """,
    re.VERBOSE,
)


class Pairs(list[tuple[object, object]]):
    """An object as pairs, since its keys may be objects themselves."""

    __slots__ = ()


def parse(text: str) -> object:
    """Parse one value: str, int, float, bool, None, list or Pairs."""
    value, at = _value(text, _skip(text, 0), 0)
    if at != len(text):
        raise _broken(text, at, "something follows the value")
    return value


def quote_keys(text: str) -> str:
    """Put quotes around every key that is a bare number."""
    return _BARE_KEY.sub(lambda match: f'"{match[1]}"' if match[1] else match[0], text)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int) -> tuple[object, int]:
    """The value that begins at `at`, and the start of the next token."""
    match text[at : at + 1]:
        case '"':
            value, end = _string(text, at)
            return value, _skip(text, end)
        case "{":
            return _object(text, at, _deeper(text, at, depth))
        case "[":
            return _array(text, at, _deeper(text, at, depth))
        case "":
            raise _broken(text, at, "a value is expected at the end")
        case _:
            return _scalar(text, at)


def _deeper(text: str, at: int, depth: int) -> int:
    if depth == NESTING_MAX:
        raise _broken(text, at, f"nested deeper than the limit {NESTING_MAX}")
    return depth + 1


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        parsed: tuple[str, int] = _read_string(text, at)
    except ValueError as error:
        raise _broken(text, at, "broken string") from error
    return parsed


def _scalar(text: str, at: int) -> tuple[object, int]:
    if number := _NUMBER.match(text, at):
        whole = number[1] is None and number[2] is None
        return int(number[0]) if whole else float(number[0]), _skip(text, number.end())
    word = _WORD.match(text, at)
    if word is None or word[0] not in _CONSTANTS:
        raise _broken(text, at, "no value")
    return _CONSTANTS[word[0]], _skip(text, word.end())


def _object(text: str, at: int, depth: int) -> tuple[Pairs, int]:
    pairs = Pairs()
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return pairs, _skip(text, at + 1)
    while True:
        key, at = _key(text, at, depth)
        if text[at : at + 1] != ":":
            raise _broken(text, at, "a colon is expected")
        value, at = _value(text, _skip(text, at + 1), depth)
        pairs.append((key, value))
        ended, at = _next(text, at, "}")
        if ended:
            return pairs, at


def _key(text: str, at: int, depth: int) -> tuple[object, int]:
    """A key: any value, or a bare word."""
    if (word := _WORD.match(text, at)) is not None:
        return word[0], _skip(text, word.end())
    return _value(text, at, depth)


def _array(text: str, at: int, depth: int) -> tuple[list[object], int]:
    items: list[object] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return items, _skip(text, at + 1)
    while True:
        item, at = _value(text, at, depth)
        items.append(item)
        ended, at = _next(text, at, "]")
        if ended:
            return items, at


def _next(text: str, at: int, end: str) -> tuple[bool, int]:
    """Whether the bracket closes here (else there is a comma), and the next token's start."""
    char = text[at : at + 1]
    if char not in {end, ","}:
        raise _broken(text, at, f"a comma or {end} is expected")
    return char == end, _skip(text, at + 1)


def _broken(text: str, at: int, what: str) -> FieldError:
    return FieldError(f"not JSON: {what}, at character {at}: {text[at : at + 20]!r}")
