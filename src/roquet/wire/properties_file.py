"""Java's properties files: a name and a value per line, the format of settings on the wire.

`name=value`, `name: value` or `name value`; a line that begins with # or ! is a comment, one that
ends with a backslash continues in the next; elsewhere a backslash begins an escape.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from roquet.model.errors import CallRefused, FieldError
from roquet.wire.codes import ResponseCode

_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_SHORT: Final = {sign: f"\\{letter}" for letter, sign in _ESCAPED.items()}
_IN_NAME: Final = re.compile(r"[\\=:#!\s]")
_IN_VALUE: Final = re.compile(r"\A |[\\\n\t\r\f]")
_NAME: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_PLAIN_LINE: Final = re.compile(
    r"^[ \t\f]*(?=[^ \t\f#!\n])([^=:\s]*)[ \t\f]*[=:]?[ \t\f]*(.*)$", re.MULTILINE
)
"""A line with a name and a value, in a text without backslashes."""

SIZE_MAX: Final = 64 * 1024
"""Characters of a file: all settings of Apache's broker take a sixth of that."""


def read_properties(text: str) -> dict[str, str]:
    """Names and values of a file; of a name that occurs twice the last value counts.

    Raises FieldError for a malformed escape, and for a text over `SIZE_MAX`.
    """
    if len(text) > SIZE_MAX:
        raise FieldError(f"settings of {len(text)} characters: {SIZE_MAX} are allowed")
    if "\\" not in text:  # as all that brokers write: a tenth of the time
        return dict(_PLAIN_LINE.findall(text.replace("\r", "\n")))
    values: dict[str, str] = {}
    for line in _whole_lines(text):
        match = _NAME.fullmatch(line)
        assert match is not None, "every part of the pattern may be empty"
        values[_plain(match[1])] = _plain(match[2])
    return values


def requested_settings(body: bytes, black_list: Collection[str] = ()) -> dict[str, str]:
    """Names and values of a request that changes settings.

    Raises CallRefused, with Apache's remarks, for a malformed body and for a name of `black_list`.
    """
    try:
        requested = read_properties(body.decode())
    except (UnicodeDecodeError, FieldError) as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from error
    if not requested.keys().isdisjoint(black_list):
        raise CallRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    return requested


def write_properties(values: Mapping[str, str]) -> str:
    """Write settings as Apache's servers do: nothing is escaped but line ends."""
    lines = (f"{name}={value}\n" for name, value in values.items())
    return "".join(line[:-1].replace("\r", "").replace("\n", "\\n") + "\n" for line in lines)


def read_unescaped(text: str) -> dict[str, str]:
    """Inverse of `write_properties`: a backslash is only a backslash there."""
    lines = (line.partition("=") for line in text.split("\n") if line)
    return {name: value for name, _, value in lines}


def escape_properties(values: Mapping[str, str]) -> str:
    """Write a file from which `read_properties` restores any names and values."""
    return "".join(
        f"{_IN_NAME.sub(_escaped, name)}={_IN_VALUE.sub(_escaped, value)}\n"
        for name, value in values.items()
    )


def _escaped(match: re.Match[str]) -> str:
    return _SHORT.get(match[0], f"\\{match[0]}")


def _whole_lines(text: str) -> Iterator[str]:
    """Lines joined with their continuations, without comments and empty lines."""
    parts: list[str] = []
    for part in re.split(r"\r\n|\r|\n", text):
        line = part.lstrip(" \t\f")
        if not any(parts) and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield "".join((*parts, line))
        parts.clear()
    if any(parts):
        yield "".join(parts)


def _plain(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code == "u":
        raise FieldError("a properties file: \\u needs four hexadecimal digits")
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, code)
