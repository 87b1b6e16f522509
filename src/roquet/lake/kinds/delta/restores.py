"""Delta restores: whether another writer has set a table back behind an archive's offsets.

Offsets stay as they are when a version is restored, so rows between would be missing for ever.

    version   1    2    3        4              5              6
              20   30   30       RESTORE to 2   RESTORE to 4   RESTORE to 1
              archived  merged   all is there   all is there   20 to 30 are missing

An archive's entries that moved no offset, as after days were removed or files merged, may be
undone. A version may be a restored one itself, so restores are followed from the newest back.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, TypeAlias

from roquet.lake.objects.object_location import TableLocation
from roquet.model.errors import ConfigError

Entry: TypeAlias = Mapping[str, Any]
"""The `commitInfo` of an entry of the log, if it has one, and its `version`."""

EARLIEST_ZONE_H: Final = 14
"""Spark notes a time without its zone, so it may be so much earlier than it would be in UTC."""


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
