"""Expiry of Iceberg snapshots: pyiceberg takes them out of the table, and leaves their files.

A branch, a tag and the snapshot that says where the archive began stay. Files are removed after the
table has forgotten the snapshots, and only those of archives and of Iceberg's own metadata.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from roquet.lake.files.output_files import PREFIX
from roquet.lake.kinds.iceberg.commit_tries import CommitTries
from roquet.lake.table import ExpiredVersions

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.snapshots import Snapshot


class SnapshotFiles(NamedTuple):
    """The paths of the files of some snapshots."""

    data: set[str]
    metadata: set[str]
    """Manifests and lists of manifests."""


def expire(table: "IceTable", before_ms: int, *, is_preview: bool) -> ExpiredVersions:
    """Expire the snapshots that are older than this, and remove the files that only they have."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    tries = CommitTries("the table", "nothing expired")
    while True:
        old = expired_snapshots(table, before_ms)
        if not old:
            return ExpiredVersions()
        gone = {each.snapshot_id for each in old}
        kept = snapshot_files(table, (s for s in table.snapshots() if s.snapshot_id not in gone))
        past = snapshot_files(table, old)
        data = {path for path in past.data - kept.data if _name(path).startswith(PREFIX)}
        files = data | (past.metadata - kept.metadata)
        if is_preview:
            return ExpiredVersions(len(old), len(files))
        try:
            _forget(table, sorted(gone))
        except (CommitFailedException, CommitStateUnknownException) as error:
            table.refresh()
            if gone & {each.snapshot_id for each in table.snapshots()}:
                tries.refused(error)
                continue
        for path in sorted(files):
            with suppress(FileNotFoundError):
                table.io.delete(path)
        return ExpiredVersions(len(old), len(files))


def _forget(table: "IceTable", snapshot_ids: list[int]) -> None:
    """Take snapshots out of the table, unless it was turned to another one meanwhile.

    pyiceberg's own expiry makes no such condition, and would take out what the table was turned to.
    """
    from pyiceberg.table.refs import MAIN_BRANCH
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotsUpdate,
    )

    head = table.metadata.current_snapshot_id
    table.catalog.commit_table(
        table,
        (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head}),
        ),
        (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": snapshot_ids}),),
    )


def expired_snapshots(table: "IceTable", before_ms: int) -> "list[Snapshot]":
    """The snapshots that are older than this and that nothing else needs."""
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    replaced_ms = {each.parent_snapshot_id: each.timestamp_ms for each in table.snapshots()}
    return [
        each
        for each in table.snapshots()
        if replaced_ms.get(each.snapshot_id, each.timestamp_ms) < before_ms
        and each.snapshot_id not in named
        and not _is_first(each)
    ]


def snapshot_files(table: "IceTable", snapshots: "Iterable[Snapshot]") -> SnapshotFiles:
    """The files of all these snapshots; each manifest is read once."""
    found = SnapshotFiles(set(), set())
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        found.metadata.add(snapshot.manifest_list)
        manifests |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        found.metadata.add(path)
        found.data.update(
            entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)
        )
    return found


def _is_first(snapshot: "Snapshot") -> bool:
    return snapshot.summary is not None and snapshot.summary["roquet.number"] == "1"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
