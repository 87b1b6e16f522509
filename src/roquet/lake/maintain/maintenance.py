"""Maintenance of an archive's table: days that are too old, small files, versions of before.

    plan = run(Params(target="lake/orders", keep_days=90), run_here, now_ms)   # changes nothing

Five steps, each a commit of its own or more: days before the first one to keep are removed, body
columns are filled for older rows, small files are merged, what a table says of its files is
completed, and versions that were replaced long ago are given up with the files that only they have.
A run after a kill does what is left.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from roquet.lake.columns.partitioning import NO_DAY
from roquet.lake.files.parquet_writer import COMPRESSION
from roquet.lake.files.staging import check_no_parquet_archive
from roquet.lake.maintain.compaction import RunTaskSet, compact, merge_groups
from roquet.lake.maintain.refill import RefillCounts, check_refilled, refill
from roquet.lake.open_table import KINDS, open_table, table_location
from roquet.lake.snapshot import TableSnapshot, read_snapshot
from roquet.lake.states.state_table import (
    IcebergStateTable,
    StateIdentity,
    StateTable,
    open_state_table,
)
from roquet.lake.table import ArchiveIdentity, ArchiveTable, DataFile, ExpiredVersions
from roquet.lake.task_set import TaskResult, TaskSet
from roquet.model.errors import ConfigError

DAY_MS: Final = 24 * 3_600_000
HOUR_MS: Final = 3_600_000

VERSIONS_MS: Final = 7 * DAY_MS
"""How long versions that were replaced stay by default: as long as Delta's own default."""

VERSIONS_MS_MIN: Final = HOUR_MS
"""Least time that replaced versions stay: a reader may be at one of them."""

THREADS_MAX: Final = 2
"""Merges at the same time in this process; each holds a sorted run twice in memory."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a table's maintenance."""

    target: str
    kind: str | None = None
    """None: as the directory looks."""
    name: str = ""
    catalog: Mapping[str, str] = {}
    storage: Mapping[str, str] = {}
    keep_days: int | None = None
    """Whole days (UTC) to keep besides the present one; None keeps all."""
    refill: tuple[str, ...] = ()
    """Columns of fields of the bodies that are filled for older rows."""
    versions_ms: int = VERSIONS_MS
    """How long versions of the table stay after they were replaced."""
    is_preview: bool = True
    compression: str = COMPRESSION
    master: str | None = None


class MaintenanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of a maintenance that was done, or that a preview would do."""

    topic: str
    kind: str
    is_state: bool = False
    """Whether it is a table of the latest state, and no archive."""
    files: int
    """Files of the table before."""
    bytes: int
    retired_before: str = ""
    """The first day that stays; empty when none is removed."""
    retired_files: int = 0
    retired_rows: int = 0
    retired_bytes: int = 0
    refilled: RefillCounts = RefillCounts()
    """Files that are written anew with values from the bodies."""
    merged_files: int = 0
    merged_bytes: int = 0
    groups: int = 0
    """Groups of small files, each of which becomes one file or a few."""
    restated_files: int = 0
    """Files of which the table said too little, so that readers could pass over their rows."""
    expired_versions: int = 0
    """Versions given up, where the table counts them (Iceberg)."""
    expired_files: int = 0
    """Files that only such versions have. In a preview without those of this run's own steps."""
    left_files: int = 0
    """Files of the table after."""


def run(params: Params, run_task_set: RunTaskSet, now_ms: int) -> MaintenanceReport:
    """Maintain a table, or say in numbers what would be done.

    Raises ConfigError for what is no archive, TableConflict while another process writes to it.
    """
    if params.versions_ms < VERSIONS_MS_MIN:
        raise ConfigError("--snapshots: an hour at least; a reader may be at an older version")
    if params.keep_days is not None and params.keep_days < 1:
        raise ConfigError("--keep: a day at least")
    place: dict[str, Any] = {"name": params.name, "catalog": params.catalog}
    place["storage"] = params.storage
    snapshot = read_snapshot(params.target, kind=params.kind, **place)
    with _opened(params, snapshot, place) as table:
        check_refilled(table, params.refill)
        plan = plan_maintenance(table, params, snapshot.kind, now_ms)
        if params.is_preview:
            refilled = refill(table, run_task_set, params.refill, is_preview=True)
            return msgspec.structs.replace(plan, refilled=refilled)
        return _carry_out(table, params, plan, run_task_set, now_ms)


def _opened(params: Params, snapshot: TableSnapshot, place: dict[str, Any]) -> ArchiveTable:
    """The archive, or the table of the latest state; ConfigError for another table."""
    if snapshot.topic:
        identity = ArchiveIdentity(topic=snapshot.topic, columns=())
        return open_table(snapshot.kind, params.target, identity, **place)
    root = table_location(params.target, params.storage)
    check_no_parquet_archive(root)
    if snapshot.kind not in KINDS:
        raise ConfigError(
            f"{params.target} is no archive: only archives and tables of the latest state are "
            "maintained"
        )
    if params.keep_days is not None:
        raise ConfigError("--keep: a table of the latest state has no days")
    catalog = params.catalog
    return open_state_table(
        snapshot.kind, root, StateIdentity(), name=snapshot.name, catalog=catalog
    )


def plan_maintenance(
    table: ArchiveTable, params: Params, kind: str, now_ms: int
) -> MaintenanceReport:
    """Plan the maintenance of the table as it is."""
    files = table.files()
    first_day = first_kept_day(now_ms, params.keep_days)
    retired = retired_files(files, first_day)
    gone = {file.path for file in retired}
    groups = list(merge_groups(file for file in files if file.path not in gone))
    merged = [file for group in groups for file in group]
    gone |= {file.path for file in merged}
    expired = table.expire(now_ms - params.versions_ms, is_preview=True)
    return MaintenanceReport(
        topic=table.identity.topic,
        kind=kind,
        is_state=isinstance(table, StateTable | IcebergStateTable),
        files=len(files),
        bytes=sum(file.size for file in files),
        retired_before=first_day if retired else "",
        retired_files=len(retired),
        retired_rows=sum(file.rows for file in retired),
        retired_bytes=sum(file.size for file in retired),
        merged_files=len(merged),
        merged_bytes=sum(file.size for file in merged),
        groups=len(groups),
        restated_files=sum(file.path not in gone for file in table.incomplete_files()),
        expired_versions=expired.versions,
        expired_files=expired.files,
        left_files=len(files) - len(retired) - len(merged) + len(groups),
    )


def _carry_out(
    table: ArchiveTable,
    params: Params,
    plan: MaintenanceReport,
    run_task_set: RunTaskSet,
    now_ms: int,
) -> MaintenanceReport:
    if plan.retired_before:
        retire(table, plan.retired_before)
    refilled = refill(table, run_task_set, params.refill, params.compression, is_preview=False)
    merged = compact(table, run_task_set, params.compression)
    restated = table.complete_statistics()
    expired: ExpiredVersions = table.expire(now_ms - params.versions_ms, is_preview=False)
    return msgspec.structs.replace(
        plan,
        refilled=refilled,
        merged_files=merged,
        restated_files=restated,
        expired_versions=expired.versions,
        expired_files=expired.files,
        left_files=len(table.files()),
    )


def retire(table: ArchiveTable, first_day: str) -> Sequence[DataFile]:
    """Remove the files of the days before this one in one commit; the offsets stay."""
    state = table.state(())  # read before the files are listed, as for a merge
    files = retired_files(table.files(), first_day)
    if files:
        commit = state.then(state.offsets, table.begin().name, (), files)
        table.commit(msgspec.structs.replace(commit, retired_before=first_day))
    return files


def first_kept_day(now_ms: int, keep_days: int | None) -> str:
    """The first day (ISO, UTC) that stays; empty when all do."""
    if keep_days is None:
        return ""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return (today - timedelta(days=min(keep_days, today.toordinal() - 1))).isoformat()


def retired_files(files: Sequence[DataFile], first_day: str) -> list[DataFile]:
    """The files of the days before this one; those without a day of their own stay."""
    return [file for file in files if first_day and _is_day(file.day) and file.day < first_day]


def run_here(task_set: TaskSet) -> list[TaskResult]:
    """Run the tasks in threads of this process, without Spark and Java."""
    with ThreadPoolExecutor(THREADS_MAX, "roquet-maintain") as pool:
        return list(pool.map(task_set.run, range(len(task_set))))


def _is_day(text: str) -> bool:
    if text == NO_DAY:
        return False
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:  # a directory of another writer
        return False
