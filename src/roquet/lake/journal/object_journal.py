"""Object journal: small named records in an object store, changed by compare-and-set.

    journal = ObjectJournal(location)
    journal.read()                              # the present records
    journal.change({"0000000001.open": data})   # refused when another process came in between

    s3://BUCKET/PATH/_delta_log/00000000000000000007.json   one change: records added and removed
    s3://BUCKET/PATH/1f0c….parquet                          the content of one record

It is a Delta table whose log entries are conditional requests, which pyarrow's file systems cannot
make. Content of removed records is deleted after the change; a kill in between leaves some bytes.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa

from roquet.lake.files.file_tree import parquet_bytes
from roquet.lake.kinds.delta.conditional_puts import check_conditional_puts
from roquet.lake.kinds.delta.storage import check_installed, explained_log, log_options
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, explanation
from roquet.model.errors import RoquetError
from roquet.net.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction, RemoveAction

NOW: Final = "_now"
"""Uploaded again and again: it tells the store's time."""

CONTENT: Final = pa.schema({"data": pa.binary()})
"""The columns of a record's file; the name is its partition."""

COLUMNS: Final = CONTENT.append(pa.field("name", pa.string()))


class JournalConflict(RoquetError):
    """Another process has changed the journal since it was read; nothing was changed."""


class ObjectJournal:
    """The records below a location; the journal is created by its first change."""

    def __init__(self, location: ObjectLocation) -> None:
        check_installed()
        self._location = location
        self._store = ObjectStore(location)
        self._log: Log | None = None
        self._paths: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def read(self) -> None:
        """Take in what other processes have changed."""
        from deltalake import DeltaTable as Log

        with explained_log(self._location):
            if self._log is not None:
                self._log.update_incremental()
            elif Log.is_deltatable(self._location.url, log_options(self._location)):
                self._log = Log(self._location.url, storage_options=log_options(self._location))
        self._take_records()

    def names(self) -> list[str]:
        """The sorted names of the records, as of the last `read` or `change`."""
        return sorted(self._paths)

    def content(self, name: str) -> bytes:
        """The content of a record; KeyError for one that is not there."""
        rows = self._store.rows([self._paths[name]], CONTENT)
        return bytes(rows["data"][0].as_py())

    def address(self, name: str) -> str:
        """The URL of a record, for users."""
        return self._location.file(name)

    def revision(self, name: str) -> str:
        """A mark of the content, new with each change of the record; empty without it."""
        return self._paths.get(name, "")

    def age_ms(self, name: str) -> int:
        """How long ago a record was written, by the store's clock; KeyError without it."""
        written_ms = self._store.modified_ms(self._paths[name])
        return 0 if written_ms is None else self._store.now_ms(NOW) - written_ms

    def change(self, added: Mapping[str, bytes], removed: Collection[str] = ()) -> None:
        """Add records and remove others, all at once.

        An added record replaces one of the same name. Raises JournalConflict when another process
        has changed anything since the last `read`, ConfigError at a store that would not tell.
        """
        if self._log is None:  # not in each process: a sink has a new one for each batch
            check_conditional_puts(self._location)
        old = {name: self._paths[name] for name in (*added, *removed) if name in self._paths}
        new = {name: f"{uuid4().hex}.parquet" for name in added}
        tables = {name: pa.table({"data": [data]}, CONTENT) for name, data in added.items()}
        files = {name: parquet_bytes(rows) for name, rows in tables.items()}
        for name, path in new.items():
            self._store.put(path, files[name])
        sizes = {name: len(data) for name, data in files.items()}
        try:
            self._enter(new, sizes, old)
        except JournalConflict:
            self._delete(new.values())
            raise
        self._delete(old.values())

    def _enter(
        self, new: Mapping[str, str], sizes: Mapping[str, int], old: Mapping[str, str]
    ) -> None:
        """Add the log entry; where its answer was lost, look for it."""
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError, DeltaError

        log = self._opened()
        actions = _actions(new, sizes, {name: (old[name], self._sizes[name]) for name in old})
        properties = CommitProperties(max_commit_retries=0)
        lost: Exception | None = None
        try:
            log.create_write_transaction(
                actions, "append", log.schema(), partition_by=["name"], commit_properties=properties
            )
        except (OSError, DeltaError) as error:
            lost = error
        self.read()
        present = self._paths.values()
        if lost is None or (
            set(new.values()) <= set(present) and set(old.values()).isdisjoint(present)
        ):
            return
        if isinstance(lost, CommitFailedError):
            raise JournalConflict(f"another process has changed {self._location}") from lost
        raise explanation(lost, self._location) from lost

    def _opened(self) -> "Log":
        """The journal's log, which is created when there is none."""
        from deltalake import DeltaTable as Log
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        if self._log is not None:
            return self._log
        options = log_options(self._location)
        with explained_log(self._location):
            try:
                self._log = Log.create(
                    self._location.url,
                    Schema.from_arrow(COLUMNS),
                    mode="error",
                    partition_by=["name"],
                    storage_options=options,
                )
            except (OSError, DeltaError) as error:
                # Another process came first, or only the answer was lost: nothing was read from it.
                if not Log.is_deltatable(self._location.url, options):
                    raise
                raise JournalConflict(f"another process has changed {self._location}") from error
        return self._log

    def _take_records(self) -> None:
        if self._log is None:
            self._paths, self._sizes = {}, {}
            return
        with explained_log(self._location):
            actions = pa.table(self._log.get_add_actions(flatten=True)).to_pylist()
        self._paths = {action["partition.name"]: action["path"] for action in actions}
        self._sizes = {action["partition.name"]: action["size_bytes"] for action in actions}

    def _delete(self, paths: Collection[str]) -> None:
        with suppress(RoquetError):
            for path in paths:
                self._store.remove(path)


def _actions(
    new: Mapping[str, str], sizes: Mapping[str, int], old: Mapping[str, tuple[str, int]]
) -> "list[AddAction | RemoveAction]":
    from deltalake.transaction import AddAction, RemoveAction

    now_ms = SYSTEM_CLOCK.now_ms()
    stats = '{"numRecords":1}'
    return [
        *(
            AddAction(path, sizes[name], {"name": name}, now_ms, True, stats)
            for name, path in new.items()
        ),
        *(
            RemoveAction(path, True, now_ms, size, {"name": name})
            for name, (path, size) in old.items()
        ),
    ]
