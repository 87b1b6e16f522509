"""Delta log entries: the `commitInfo` of single entries, by their versions, and restores in them.

    _delta_log/00000000000000000007.json    {"commitInfo":{"operation":"RESTORE",…}}
                                            {"remove":{…}}

The Delta protocol does not ask for a `commitInfo`. deltalake's history leaves out entries without
one, and counts its versions down from the newest all the same, so those of older entries are wrong.

Offsets stay as they are when another writer restores a version, so rows between would be missing
for ever.

    version   1    2    3        4              5              6
              20   30   30       RESTORE to 2   RESTORE to 4   RESTORE to 1
              archived  merged   all is there   all is there   20 to 30 are missing

An archive's entries that moved no offset, as after days were removed or files merged, may be
undone. A version may be a restored one itself, so restores are followed from the newest back.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from roquet.lake.kinds.delta.storage import LOG
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import READERS, explained_read, open_source
from roquet.lake.table import TableDamaged
from roquet.model.errors import ConfigError

Entry: TypeAlias = Mapping[str, Any]
"""The `commitInfo` of an entry of the log, if it has one, and its `version`."""

EARLIEST_ZONE_H: Final = 14
"""Spark notes a time without its zone, so it may be so much earlier than it would be in UTC."""


class _Action(msgspec.Struct):
    """A line of an entry."""

    info: dict[str, Any] | None = msgspec.field(name="commitInfo", default=None)


_ACTIONS: Final = msgspec.json.Decoder(_Action)


def entries(root: TableLocation, newest: int) -> Iterator[Entry]:
    """The entries of a table from this version back, to the oldest that the log still has.

    They are read as they are asked for: the newest alone, then a few at a time. Raises TableDamaged
    for one that is no JSON, and errors of the object store or of the directory's file system.
    """
    with ThreadPoolExecutor(READERS) as readers:
        version, count = newest, 1
        while version >= 0:
            versions = range(version, max(-1, version - count), -1)
            for entry in readers.map(partial(_entry, root), versions):
                if entry is None:
                    return
                yield entry
            version, count = version - count, READERS


def _entry(root: TableLocation, version: int) -> Entry | None:
    """One entry; None when the log does not have it any more."""
    try:
        with _lines(root, f"{LOG}/{version:020}.json") as lines:
            found = (_ACTIONS.decode(line).info for line in lines if not line.isspace())
            info = next((each for each in found if each is not None), {})
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise TableDamaged(f"entry {version} of the Delta log of {root}: {error}") from error
    return {**info, "version": version}


@contextmanager
def _lines(root: TableLocation, path: str) -> Iterator[Iterable[bytes]]:
    """The lines of an entry, which may be long: it is not read whole."""
    if isinstance(root, Path):
        with (root / path).open("rb") as file:
            yield file
        return
    url = root.file(path)
    with (
        explained_read(url, root.options),
        open_source(url, root.options) as file,
        io.BufferedReader(file) as lines,
    ):
        yield lines


def is_restored(entries: Sequence[Entry]) -> bool:
    """Whether a version was restored by one of these."""
    return any(each.get("operation") == "RESTORE" for each in entries)


def check_not_restored(entries: Sequence[Entry], version: int, where: TableLocation) -> None:
    """Raise ConfigError when rows up to an archive's offsets were taken from a table by a restore.

    `entries` are the newest ones, newest first, perhaps with some before `version`, the archive's
    last one.
    """
    restored, floor = _restored_version(entries), _first_whole(entries, version)
    if restored is not None and restored < floor:
        raise ConfigError(
            f"{where} was restored to a version before {floor}, the first with all rows up to the "
            f"archive's offsets, so some are missing: restore version {version}, or archive to "
            "another place"
        )


def _first_whole(entries: Sequence[Entry], version: int) -> int:
    """The oldest version that ends at the offsets of this one."""
    whole, offsets = version, None
    for each in entries:
        if each["version"] > version or "roquet" not in each:
            continue
        note = each["roquet"].get("offsets")
        if offsets is None:
            offsets = note
        elif note != offsets:
            break
        whole = each["version"]
    return whole


def _restored_version(entries: Sequence[Entry]) -> int | None:
    """The version whose rows the newest one has; None without a restore, -1 if it is unknown."""
    at: int | None = None
    for number, each in enumerate(entries):
        is_below = at is None or each["version"] <= at
        if each.get("operation") == "RESTORE" and is_below:
            at = _target(each, entries[number + 1 :])
    return at


def _target(restore: Entry, older: Sequence[Entry]) -> int:
    """The version that was restored, by its number or by a time; -1 if it is unknown."""
    given = restore.get("operationParameters", {})
    if (text := str(given.get("version"))).isdecimal():
        return int(text)
    time_ms = _time_ms(given.get("datetime"), given.get("timestamp"))
    before = (each["version"] for each in older if each.get("timestamp", inf) <= time_ms)
    return next(before, -1)


def _time_ms(millis: object, text: object) -> float:
    """A time that deltalake (milliseconds) or Spark (a text) noted; -1 if it cannot be read."""
    if str(millis).isdecimal():
        return int(str(millis))
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return -1
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC) - timedelta(hours=EARLIEST_ZONE_H)
    return time.timestamp() * 1000
