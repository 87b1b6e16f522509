"""Flight table: a row of SQLite for each message, by queue and offset, and its counts.

A message that comes again changes nothing. An offset that comes with another flight than before is
kept as a conflict: a consumer would have seen a message that is gone.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, Self

import msgspec

from demos.failover.timeline import Acknowledgement

SCHEMA: Final = """
create table if not exists flights (
  queue_id integer, queue_offset integer, row integer, tailnum text,
  primary key (queue_id, queue_offset)) without rowid;
create table if not exists conflicts (queue_id integer, queue_offset integer, row integer);
"""

DISORDER: Final = """
with first as (
  select row, tailnum, queue_id, min(queue_offset) as queue_offset
  from flights where tailnum is not null group by row, tailnum, queue_id),
steps as (
  select tailnum, row, queue_id,
    lag(row) over (partition by tailnum order by queue_offset) as before,
    lag(queue_id) over (partition by tailnum order by queue_offset) as queue_before
  from first)
select count(distinct tailnum) from steps where before > row or queue_before <> queue_id
"""
"""Aircraft whose flights are not in one queue in the order of the file, repeats left out."""


class TableCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the table."""

    messages: int
    """Different offsets."""
    rows: int
    """Different flights."""
    conflicts: int
    disordered: int
    """Aircraft whose order was not kept."""
    found: int
    """Acknowledged flights that are at the offset of their receipt."""


class FlightTable:
    """The table, open for writing by one process; others may read it meanwhile."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = off")  # the demo survives no loss of power
        self._database.executescript(SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, queue_id: int, offset: int, row: int, aircraft: str | None) -> None:
        """Add a message, unless it is there."""
        added = self._database.execute(
            "insert or ignore into flights values (?, ?, ?, ?)", (queue_id, offset, row, aircraft)
        )
        if added.rowcount:
            return
        place = "from flights where queue_id = ? and queue_offset = ?"
        known = self._database.execute(f"select row {place}", (queue_id, offset)).fetchone()
        if known != (row,):
            self._database.execute(
                "insert into conflicts values (?, ?, ?)", (queue_id, offset, row)
            )


def count_messages(path: Path) -> int:
    """Number of messages in a table that another process writes; 0 before it is there."""
    if not path.exists():
        return 0
    try:
        with closing(_read_only(path)) as database:
            (count,) = database.execute("select count(*) from flights").fetchone()
    except sqlite3.OperationalError:  # just being made
        return 0
    return int(count)


def count_all(path: Path, acknowledged: Iterable[Acknowledgement]) -> TableCounts:
    """Count everything in a table, and the acknowledged flights that are in their place."""
    with closing(_read_only(path)) as database:
        places = {(queue, offset): row for queue, offset, row in database.execute(
            "select queue_id, queue_offset, row from flights")}  # fmt: skip
        (conflicts,) = database.execute("select count(*) from conflicts").fetchone()
        (disordered,) = database.execute(DISORDER).fetchone()
    return TableCounts(
        messages=len(places),
        rows=len(set(places.values())),
        conflicts=conflicts,
        disordered=disordered,
        found=sum(places.get((one.queue_id, one.offset)) == one.row for one in acknowledged),
    )


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
