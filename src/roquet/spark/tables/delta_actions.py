"""Delta actions: the files of a commit as entries of the log, and files as the log lists them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from roquet.spark.tables.partition_scheme import HOUR, number_within, place_of
from roquet.spark.tables.partitioning import NO_DAY
from roquet.spark.tables.table import DataFile, TableCommit

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction


def actions(commit: TableCommit, now_ms: int) -> "list[AddAction | RemoveAction]":
    """The files that a commit adds and removes."""
    from deltalake.transaction import RemoveAction

    is_news = commit.is_news
    return [
        *(_added(file, now_ms, is_news=is_news) for file in commit.added),
        *(
            RemoveAction(file.path, is_news, now_ms, file.size, _partition(file))
            for file in commit.removed
        ),
    ]


def file_of(action: Mapping[str, Any]) -> DataFile:
    """A file of the table, from a flat row of its add actions."""
    day = action["partition.day"]
    (_, within), name = place_of(action["path"])
    return DataFile(
        name=name,
        day=NO_DAY if day is None else str(day),
        within=within,
        rows=action["num_records"],
        size=action["size_bytes"],
    )


def _partition(file: DataFile) -> dict[str, str | None]:
    day = {"day": None if file.day == NO_DAY else file.day}
    if not file.within:
        return day
    hour = number_within(file.partition, HOUR)
    return {**day, HOUR: None if hour is None else str(hour)}


def _added(file: DataFile, now_ms: int, *, is_news: bool) -> "AddAction":
    from deltalake.transaction import AddAction

    stats: Mapping[str, Any] = {
        "numRecords": file.rows,
        "minValues": file.least,
        "maxValues": file.most,
        "nullCount": {},
    }
    text = msgspec.json.encode(stats).decode()
    return AddAction(file.path, file.size, _partition(file), now_ms, is_news, text)
