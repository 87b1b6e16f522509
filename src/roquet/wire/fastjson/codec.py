"""JSON codec for Java peers: bare keys and number keys, loose types.

Reads standard JSON and Java's. Writes Java's, or standard JSON for peers that ask for it.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable
from enum import Enum, IntFlag
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec

from roquet.model.errors import FieldError

T = TypeVar("T")

_INT: Final[set[type]] = {int}

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


def loads(data: bytes | str, wanted: type[T]) -> T:
    """Decode a JSON text; raises FieldError that says where it is broken or ill-typed."""
    kind: Any = wanted
    decode = _decoder(kind)
    try:
        return cast("T", decode(data))
    except _UNREADABLE:
        return _loads_loosely(data, wanted)


def _loads_loosely(data: bytes | str, wanted: type[T]) -> T:
    """Decode JSON that only Java writes, or whose types are not quite the right ones."""
    # Here: a client whose peers write standard JSON loads neither.
    from roquet.wire.fastjson.coercion import coerce
    from roquet.wire.fastjson.parser import parse, quote_keys

    text = quote_keys(_text(data))
    kind: Any = wanted
    try:
        return cast("T", _decoder(kind)(text))
    except _UNREADABLE:
        pass
    try:
        value = msgspec.json.decode(text)
    except _UNREADABLE:
        value = parse(text)
    return cast("T", coerce(value, wanted))


def loads_strictly(data: bytes | str, wanted: type[T]) -> T:
    """Decode standard JSON of the right types, in C only.

    Raises MsgspecError, UnicodeError or RecursionError for anything else.
    """
    kind: Any = wanted
    return cast("T", _decoder(kind)(data))


class EncodedTextCache:
    """Cache of encoded table values between two writes of the table, of which few have changed.

    Values are compared by identity, so they must never change, as frozen structs do not.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: dict[int, tuple[object, str]] = {}
        self._now: dict[int, tuple[object, str]] = {}

    def begin(self) -> None:
        """Start another write of the table; values that it no longer has will be forgotten."""
        self._before, self._now = self._now, {}

    def text(self, value: object, write: Callable[[object, str], str], line: str) -> str:
        """Encoded text of a value, cached or written now."""
        entry = self._before.get(id(value))
        if entry is None or entry[0] is not value:
            entry = (value, write(value, line))
        self._now[id(value)] = entry
        return entry[1]


def dumps(
    value: object,
    *,
    standard: bool = False,
    pretty: bool = False,
    text_cache: EncodedTextCache | None = None,
) -> bytes:
    """Encode a value as Java's JSON library does: compact, fields sorted by name, without nulls.

    `standard` quotes and sorts the keys of maps and escapes characters outside ASCII, as a name
    server answers newer clients. `pretty` is the layout of configuration files. `text_cache` makes
    repeated writes of a large table cheap; it belongs to one table and one way of writing.
    """
    from json.encoder import encode_basestring, encode_basestring_ascii  # here: with the first body

    quote = encode_basestring_ascii if standard else encode_basestring
    writer = _Writer(standard=standard, pretty=pretty, quote=quote, text_cache=text_cache)
    if text_cache is not None:
        text_cache.begin()
    text = writer.write(value, "\n")
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which Java's strings can hold
        writer = _Writer(standard=standard, pretty=pretty, quote=encode_basestring_ascii)
        return writer.write(value, "\n").encode()


@cache
def _decoder(wanted: Any) -> Callable[[bytes | str], object]:
    return msgspec.json.Decoder(wanted, strict=False).decode


def _text(data: bytes | str) -> str:
    try:
        return data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise FieldError(f"not JSON: no UTF-8 at byte {error.start}") from error


class _Writer(msgspec.Struct, frozen=True):
    """Writer of one style; `line` is the start of a line: a newline and tabs."""

    standard: bool
    pretty: bool
    quote: Callable[[str], str]
    text_cache: EncodedTextCache | None = None

    def write(self, value: object, line: str) -> str:
        """Text of any value."""
        kind = type(value)
        if kind is str:
            return self.quote(cast("str", value))
        if kind is int:
            return str(value)
        if isinstance(value, dict):
            return self._object(self._map(value, line), line)
        if isinstance(value, msgspec.Struct):
            return self._object(self._fields(value, line), line)
        if isinstance(value, list | tuple | set | frozenset):
            return self._array(value, line)
        return _scalar(value)

    def _object(self, pairs: Iterable[str], line: str) -> str:
        inner = self._deeper(line)
        text = f",{inner}".join(pairs)
        return f"{{{inner}{text}{self._same(line)}}}" if text else "{}"

    def _array(self, items: Iterable[object], line: str) -> str:
        """Array: numbers on one line, texts and objects on lines of their own."""
        inner = self._deeper(line)
        texts = [self.write(item, inner) for item in items]
        if not texts or texts[0][0] not in '{["':
            return f"[{','.join(texts)}]"
        return f"[{inner}{f',{inner}'.join(texts)}{self._same(line)}]"

    def _fields(self, value: msgspec.Struct, line: str) -> Iterable[str]:
        inner = self._deeper(line)
        for wire_name, name in _wire_names(type(value)):
            if (item := getattr(value, name)) is not None:
                yield f'"{wire_name}":{self.write(item, inner)}'

    def _map(self, value: dict[Any, object], line: str) -> Iterable[str]:
        inner = self._deeper(line)
        if not self.standard and set(map(type, value.values())) == _INT == set(map(type, value)):
            return [f"{key}:{item}" for key, item in value.items()]  # offsets: the largest tables
        return self._pairs(value, inner)

    def _pairs(self, value: dict[Any, object], inner: str) -> Iterable[str]:
        text_cache = self.text_cache
        for key in sorted(value) if self.standard else value:
            item = value[key]
            if text_cache is not None and isinstance(item, msgspec.Struct):
                yield f"{self._key(key)}:{text_cache.text(item, self.write, inner)}"
            elif item is not None:
                yield f"{self._key(key)}:{self.write(item, inner)}"

    def _key(self, key: object) -> str:
        if type(key) is str:
            return self.quote(key)
        if type(key) is int:
            text = str(key)
        else:
            text = _Writer(self.standard, False, self.quote).write(key, "")
        return self.quote(text) if self.standard else text

    def _deeper(self, line: str) -> str:
        return f"{line}\t" if self.pretty else ""

    def _same(self, line: str) -> str:
        return line if self.pretty else ""


@cache
def _wire_names(struct: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Wire names, sorted, with our names."""
    return tuple(sorted((f.encode_name, f.name) for f in msgspec.structs.fields(struct)))


def _scalar(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case IntFlag():
            return str(value.value)
        case Enum():
            return f'"{value.name}"'
        case int() | float():
            return repr(value)
        case bytes():
            return f'"{b64encode(value).decode()}"'
        case _:
            raise TypeError(f"{type(value).__name__} cannot be written as JSON")
