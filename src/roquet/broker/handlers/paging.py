"""Paging: a table told in parts, to those who ask for parts."""

from collections.abc import Mapping
from typing import TypeVar

from roquet.model.errors import CallRefused
from roquet.model.topic import DataVersion
from roquet.wire import dialect
from roquet.wire.codes import ResponseCode

V = TypeVar("V")


def page(
    table: Mapping[str, V],
    version: DataVersion,
    *,
    first: int | None,
    most: int | None,
    seen_version: str | None,
) -> dict[str, V]:
    """The rows of a table from a number on, `most` of them, by name.

    Whoever saw another edition of the table begins again, as at the genuine broker: its numbers
    would count other rows.
    """
    first = first or 0
    if first < 0 or (most is not None and most < 1):
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"no page begins at {first} and has {most}")
    is_same = bool(seen_version) and dialect.loads(seen_version or "", DataVersion) == version
    start = first if is_same else 0
    if start == 0 and most is None:
        return dict(table)
    names = sorted(table)[start:]
    return {name: table[name] for name in (names if most is None else names[:most])}
