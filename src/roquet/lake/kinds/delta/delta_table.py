"""Delta table: one entry of its log publishes files and offsets together.

Offsets are application transactions of the table, `roquet/TOPIC/BROKER/QUEUE` for each queue;
`roquet/TOPIC` holds the number of the commit, `roquet/TOPIC/BROKER` the topic's id as a number.
Delta keeps these for ever, longer than log entries. The entry's own metadata repeats them for
inspection and lists the queues.

An entry is made for the version that was read, or not at all: by a link in a directory, by a
conditional request in an object store. When another writer came first, a clean-up for example, the
table is read again. So it is when the answer of an object store was lost: the entry may be there,
and names its attempt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.files.disk import Disk, sync
from roquet.lake.files.object_staging import ObjectStaging
from roquet.lake.files.staging import Staging, check_target, clean_if_due, unnamed_files
from roquet.lake.kinds.delta import actions as delta_actions
from roquet.lake.kinds.delta import columns as delta_columns
from roquet.lake.kinds.delta.conditional_puts import check_conditional_puts
from roquet.lake.kinds.delta.log_entries import check_not_restored, entries, is_restored
from roquet.lake.kinds.delta.storage import (
    LOG,
    check_free,
    check_installed,
    check_plain_files,
    check_stamps,
    explained_log,
    log_options,
)
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import explanation
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, from_json
from roquet.lake.table import (
    ArchiveIdentity,
    ArchiveTable,
    DataFile,
    ExpiredVersions,
    StagingArea,
    TableCommit,
    TableConflict,
    TableState,
    agree_identity,
    check_base,
    check_removed,
)
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.topic_id import from_number, to_number

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction, RemoveAction

log = logger(__name__)

TRIES: Final = 20
"""Attempts to add an entry while other writers add theirs."""

HOUR_MS: Final = 3_600_000

UNWRITABLE: Final = ("Unsupported table features required", "Table features must be specified")
"""How deltalake begins its error for features that it cannot write; its class is that of an entry
that came first."""

RETENTION: Final = "delta.deletedFileRetentionDuration"

FORGOTTEN_MS: Final = 7 * 24 * HOUR_MS
"""Its default: how long the log knows files that were removed."""

HISTORY_MAX: Final = 100
"""Log entries that are searched for a commit whose answer was lost, or for what a restore undid."""


class DeltaTable(ArchiveTable):
    """An archive as a Delta table, in a directory or an object store."""

    kind = "delta"

    def __init__(
        self, root: TableLocation, wanted: ArchiveIdentity, disk: Disk | None = None
    ) -> None:
        check_installed()
        self._root = root
        self._disk = disk or Disk()
        self._staging = _staging_area(root, self._disk)
        try:
            with explained_log(root):
                self._log, self.identity = self._opened(wanted)
                self._check_writable()
                if not self._number():
                    delta_columns.check_no_files(self._log.file_uris(), root)
                self._own_version = self._log.version()
                self._known = set(self._queues())
            self._staging.settle(self._number())
            clean_if_due(self._staging, self.clean)
        except BaseException:
            self._staging.close()
            raise

    def state(self, queues: Iterable[QueueKey] = ()) -> TableState:
        """The last commit, and the offsets of these and all known queues."""
        self._update()
        self._known |= {*queues}
        with explained_log(self._root):
            versions = {
                each: self._log.transaction_version(self._app(each)) for each in self._known
            }
            offsets = {queue: offset for queue, offset in versions.items() if offset is not None}
            ids = topic_ids(self._log, self.identity.topic, offsets)
            return TableState(self._number(), offsets, ids)

    def commit(self, commit: TableCommit) -> None:
        """Bring the files to their days, then add the log entry."""
        before = from_json(commit.before)
        self._known |= {*from_json(commit.after)}
        for _ in range(TRIES):
            check_base(commit, self.state(before))
            self._check_writable()
            self._check_not_restored()
            if self._declared_statistics():
                continue  # with the checks of what may have come before that entry
            if commit.removed:
                if commit.is_news:
                    delta_columns.check_removal(self._log, self._root)
                check_removed(commit, self._paths())
            self._staging.publish(commit)
            if self._entered(commit):
                break
        else:
            check_base(commit, TableState(-1, {}))
        self._staging.settle(commit.number)

    def files(self) -> Sequence[DataFile]:
        """The files that the log names; ConfigError where another writer keeps rows otherwise."""
        self._update()
        check_plain_files(self._log, self._root)
        return delta_actions.files_of(self._listed())

    def expire(self, before_ms: int, *, is_preview: bool) -> ExpiredVersions:
        """Remove files that no version of the table has had since this time (a vacuum)."""
        self._update()
        forgotten = self._forgotten(before_ms)
        hours = -(-max(0, SYSTEM_CLOCK.now_ms() - before_ms) // HOUR_MS)  # rounded up
        with self._adding():
            removed = self._log.vacuum(hours, is_preview, enforce_retention_duration=False)
        for path in () if is_preview else forgotten:
            self._disk.remove(path)
        return ExpiredVersions(files=len(removed) + len(forgotten))

    def _forgotten(self, before_ms: int) -> list[Path]:
        """Files of a directory that were replaced so long ago that the log has forgotten them.

        A checkpoint leaves out what was removed before FORGOTTEN_MS, and a vacuum does not see it.
        In an object store `clean` removes such files.
        """
        is_default = RETENTION not in self._log.metadata().configuration
        is_older = SYSTEM_CLOCK.now_ms() - before_ms > FORGOTTEN_MS + HOUR_MS
        if not isinstance(self._root, Path) or is_older or not is_default:
            return []
        try:
            return unnamed_files(self._root, self._named_paths(), before_ms)
        except TableConflict as error:
            log.warning("files that were replaced long ago stay: %s", error)
            return []

    def body_fields(self) -> tuple[BodyField, ...]:
        """The body columns of the table's schema."""
        self._update()
        if not self.identity.body_format:
            return ()
        return delta_columns.body_fields(self._log, self.own_columns)

    def add_body_fields(self, fields: Iterable[BodyField]) -> None:
        """Add columns for these fields, unless they are there."""
        with self._adding():
            delta_columns.add_body_fields(self._log, [*fields], self._root, self.own_columns)

    def incomplete_files(self) -> Sequence[DataFile]:
        """The files whose statistics in the log are incomplete."""
        self._update()
        return [listed.file for listed in self._incomplete()]

    def complete_statistics(self) -> int:
        """Write entries with complete statistics for files that lack some; returns how many."""
        self._update()
        self._check_writable()
        self._declared_statistics()
        files = self._incomplete()
        for at in range(0, len(files), delta_actions.FILES_AT_ONCE):
            self._restate(files[at : at + delta_actions.FILES_AT_ONCE])
        return len(files)

    def _opened(self, wanted: ArchiveIdentity) -> "tuple[Log, ArchiveIdentity]":
        """The table's log and the archive's identity; creates the table when there is none."""
        from deltalake import DeltaTable as Log
        from deltalake.exceptions import DeltaError

        options = log_options(self._root)
        if not Log.is_deltatable(str(self._root), options):
            identity = self._agree(wanted, None)
            try:
                return self._made(identity), identity
            except (OSError, DeltaError):
                # In an object store another archive came first, or only the answer was lost.
                if isinstance(self._root, Path) or not Log.is_deltatable(self._root.url, options):
                    raise
        log = Log(str(self._root), storage_options=options)
        return log, self._agree(wanted, log)

    def _check_writable(self) -> None:
        """Raise ConfigError when another writer has made the table one of other rows.

        A file that has got a deletion vector keeps its name, so a merge would not miss it.
        """
        identity, root = self.identity, self._root
        check_plain_files(self._log, root)
        schema, names = self._schema(identity), self._partition_columns(identity)
        delta_columns.check_writable(self._log, schema, names, root)

    def _check_not_restored(self) -> None:
        """Raise ConfigError when a version that lacks rows up to our offsets was restored."""
        later = self._log.version() - self._own_version
        newest_first = entries(self._root, self._log.version())
        found = [*islice(newest_first, max(0, later))]
        if is_restored(found):
            found += islice(newest_first, HISTORY_MAX)
            check_not_restored(found, self._own_version, self._root)

    def _agree(self, wanted: ArchiveIdentity, log: "Log | None") -> ArchiveIdentity:
        """The identity of the table; None is one that is to be created."""
        existing = None if log is None else identity_of(log, self._root)
        return agree_identity(wanted, existing, self._root)

    def _description(self, identity: ArchiveIdentity) -> Mapping[str, object]:
        """The description of a new table, as JSON."""
        return {"roquet": identity}

    def _schema(self, identity: ArchiveIdentity) -> pa.Schema:
        """The columns of a new table, those of its partitions among them."""
        return delta_columns.table_schema(identity)

    def _partition_columns(self, identity: ArchiveIdentity) -> list[str]:
        return delta_columns.partition_columns(identity)

    def _made(self, identity: ArchiveIdentity) -> "Log":
        from deltalake import DeltaTable as Log
        from deltalake import Schema

        return Log.create(
            str(self._root),
            Schema.from_arrow(self._schema(identity)),
            mode="error",
            partition_by=self._partition_columns(identity),
            name=identity.topic,
            description=msgspec.json.encode(self._description(identity)).decode(),
            configuration=delta_columns.statistics_property(identity),
            storage_options=log_options(self._root),
        )

    def _has_ranges(self, *, unless_said: bool = False) -> bool:
        """Whether the table says that the columns with statistics are ours.

        `unless_said` is the answer for a table of an earlier Roquet, which says nothing.
        """
        wanted = delta_columns.statistics_property(self.identity)[delta_columns.STATISTICS]
        said = self._log.metadata().configuration.get(delta_columns.STATISTICS)
        return unless_said if said is None else said == wanted

    @property
    def says_statistics(self) -> bool:
        """Whether the table says which columns have statistics, in the version read last."""
        return delta_columns.STATISTICS in self._log.metadata().configuration

    def _declared_statistics(self) -> bool:
        """Say in the table which columns have statistics; False if that added no entry."""
        if self.says_statistics:
            return False
        with self._adding():
            delta_columns.declare_statistics(self._log, self.identity)
        return self.says_statistics

    def _incomplete(self) -> Sequence[delta_actions.ListedFile]:
        """The archive's files with incomplete statistics in the version that was read last."""
        check_plain_files(self._log, self._root)
        if not self._has_ranges(unless_said=True):
            return ()
        columns = delta_columns.statistics_columns(self.identity)
        return delta_actions.incomplete_files(self._listed(), columns)

    def _restate(self, files: Sequence[delta_actions.ListedFile]) -> None:
        """Add an entry with the statistics of these files; those that are gone by then are not."""
        from deltalake.exceptions import CommitFailedError

        columns = delta_columns.statistics_columns(self.identity)
        entries = [*delta_actions.restated(files, columns, self.path, self.storage)]
        for _ in range(TRIES):
            check_plain_files(self._log, self._root)  # a file keeps its name with deleted rows
            present = self._paths()
            try:
                with self._adding():
                    self._add_actions([each for each in entries if each.path in present])
            except CommitFailedError:  # another entry came first
                self._update()
            else:
                return
        raise TableConflict(
            f"other writers changed {self._root} {TRIES} times in a row; statistics stay incomplete"
        )

    def _update(self) -> None:
        """Read the log's newest entries."""
        with explained_log(self._root):
            self._log.update_incremental()

    def _entered(self, commit: TableCommit) -> bool:
        """Add the log entry; False when another writer added one first."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        version = self._log.version() + 1  # others may come right after it
        try:
            self._add_entry(commit)
        except CommitFailedError as error:
            if self._is_entered(commit):
                return True
            if str(error).startswith(UNWRITABLE):
                raise ConfigError(
                    f"{self._root} cannot be written to any more: {error}. Another writer gave the "
                    "table these. Nothing was committed; archive to another place"
                ) from error
            return False
        except (OSError, DeltaError) as error:
            if isinstance(self._root, Path):
                raise
            if not self._is_entered(commit):
                raise explanation(error, self._root) from error
            return True
        self._update()
        self._own_version = version
        self._keep(version)
        return True

    def _is_entered(self, commit: TableCommit) -> bool:
        """Whether the log has this very commit: its answer was lost, or it was sent twice."""
        self._update()
        if self._number() < commit.number:
            return False
        for entry in islice(entries(self._root, self._log.version()), HISTORY_MAX):
            if entry.get("roquet", {}).get("attempt") == commit.attempt:
                self._own_version = entry["version"]
                return True
        return False

    def _add_entry(self, commit: TableCommit) -> None:
        from deltalake import Transaction

        after = from_json(commit.after)
        marks = [Transaction(self._app(queue), offset) for queue, offset in sorted(after.items())]
        marks.append(Transaction(self._app(), commit.number))
        if commit.retired_before:
            retired = date.fromisoformat(commit.retired_before).toordinal()
            marks.append(Transaction(retired_app(self.identity.topic), retired))
        for broker, topic_id in sorted(commit.topic_ids.items()):
            if (number := to_number(topic_id)) is not None:
                marks.append(Transaction(f"{self._app()}/{broker}", number))
        note = {
            "number": commit.number,
            "attempt": commit.attempt,
            "offsets": commit.after,
            "topic_ids": dict(commit.topic_ids),
        }
        self._add_actions(
            delta_actions.actions(commit, SYSTEM_CLOCK.now_ms(), has_ranges=self._has_ranges()),
            custom_metadata={"roquet": note},
            app_transactions=marks,
        )

    def _add_actions(
        self, actions: "Sequence[AddAction | RemoveAction]", **properties: Any
    ) -> None:
        """Add an entry for the next version, or raise CommitFailedError."""
        from deltalake import CommitProperties

        self._log.create_write_transaction(
            [*actions],
            "append",
            self._log.schema(),
            partition_by=self._partition_columns(self.identity),
            commit_properties=CommitProperties(max_commit_retries=0, **properties),
        )

    @contextmanager
    def _adding(self) -> Iterator[None]:
        """Explain the errors of a block that adds entries; then read them and make them durable."""
        first = self._log.version() + 1
        with explained_log(self._root):
            yield
        self._update()
        self._keep(first)

    def _keep(self, first: int) -> None:
        """Make the entries from this version on durable; deltalake does not sync files."""
        if not isinstance(self._root, Path):
            return
        directory = self._root / LOG
        for version in range(first, self._log.version() + 1):
            sync(directory / f"{version:020}.json")
        self._disk.sync(directory)

    def _paths(self) -> set[str]:
        return set(self._listed()["path"].to_pylist())

    def _listed(self) -> pa.Table:
        """The files in the version that was read last, as flat add actions."""
        with explained_log(self._root):
            return pa.table(self._log.get_add_actions(flatten=True))

    def _named_paths(self) -> set[str]:
        """The paths of the table's files, and of those that older versions still have.

        TableConflict when another writer's clock is ahead, so that those are not known.
        """
        self._update()
        check_stamps(self._log, self._root, SYSTEM_CLOCK.now_ms())
        with explained_log(self._root):
            removed = self._log.vacuum(0, dry_run=True, enforce_retention_duration=False)
        return {*self._paths(), *removed}

    def _number(self) -> int:
        return self._log.transaction_version(self._app()) or 0

    def _queues(self) -> QueueOffsets:
        """Offsets in our last log entry; empty when the log does not reach so far back."""
        if not self._number():
            return {}
        for entry in entries(self._root, self._log.version()):
            if "roquet" in entry:
                self._own_version = entry["version"]
                self._check_not_restored()
                return from_json(entry["roquet"]["offsets"])
        return {}

    def _app(self, queue: QueueKey | None = None) -> str:
        name = f"roquet/{self.identity.topic}"
        return name if queue is None else f"{name}/{queue[1]}/{queue[2]}"


def topic_ids(log: "Log", topic: str, queues: Iterable[QueueKey]) -> Mapping[str, str]:
    """Topic ids by broker that a table's offsets belong to; unknown ones are left out."""
    brokers = sorted({broker for _, broker, _ in queues})
    numbers = {broker: log.transaction_version(f"roquet/{topic}/{broker}") for broker in brokers}
    return {broker: from_number(number) for broker, number in numbers.items() if number is not None}


def retired_app(topic: str) -> str:
    """The application of the first day that stays, as an ordinal; no broker can have its name."""
    return f"roquet-retired/{topic}"


def identity_of(log: "Log", root: TableLocation) -> ArchiveIdentity:
    """The identity of the archive in a Delta table; ConfigError when it is no archive."""
    try:
        return msgspec.json.decode(log.metadata().description or "", type=_Note).roquet
    except msgspec.MsgspecError:
        text = f"{root} is a Delta table, but not an archive: give another directory"
        raise ConfigError(text) from None


class _Note(msgspec.Struct):
    """A table's description."""

    roquet: ArchiveIdentity


def _staging_area(root: TableLocation, disk: Disk) -> StagingArea:
    """The staging of a table that is there or may be made; ConfigError when something else is.

    ConfigError, too, for an object store that would not refuse the second of two commits.
    """
    if isinstance(root, Path):
        check_target(root, "delta")
        return Staging(root, root, disk)
    check_free(root)
    check_conditional_puts(root)
    return ObjectStaging(root)
