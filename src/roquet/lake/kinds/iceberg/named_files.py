"""Named files: those that snapshots of an Iceberg table name, and the expiry of older snapshots.

pyiceberg takes expired snapshots out of the table, and leaves their files. A branch, a tag and the
snapshot that says where the archive began stay. Files are removed after the table has forgotten the
snapshots, and only those of archives and of Iceberg's own metadata.

A table in an object store has files of killed runs among its own. Its catalog alone does not say
which those are: it may have been restored from a backup, and another catalog may have the table,
too, perhaps at a version that is past here. So every metadata file below the table counts, whoever
has written it.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.lake.files.output_files import PREFIX
from roquet.lake.kinds.iceberg.commits import CommitTries
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.table import ExpiredVersions, TableDamaged
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

METADATA: Final = "metadata"
"""The directory of a table's metadata, unless a property says otherwise."""

METADATA_SUFFIX: Final = ".metadata.json"


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
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

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
        and not (each.summary is not None and each.summary["roquet.number"] == "1")
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


def named_files(table: "IceTable", home: ObjectLocation) -> set[str]:
    """The URLs of the data files of all versions of a table that lies at `home`.

    Raises ConfigError when its metadata lies elsewhere, TableDamaged for metadata that cannot be
    read.
    """
    table.refresh()
    where = table.metadata_location.replace("s3a://", "s3://", 1)
    if not where.startswith(f"{home}/{METADATA}/"):
        raise ConfigError(
            f"the metadata of {home} lies elsewhere, so nothing says which of its files other "
            "catalogs name; no file was removed"
        )
    found = snapshot_files(table, table.snapshots()).data
    known = {snapshot.manifest_list for snapshot in table.snapshots()}
    for metadata in _other_metadata(table, home):
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list not in known:
                known.add(snapshot.manifest_list)
                with suppress(FileNotFoundError):  # expired: its files have been removed
                    found |= snapshot_files(table, [snapshot]).data
    return found


def _other_metadata(table: "IceTable", home: ObjectLocation) -> "Iterator[TableMetadata]":
    """All metadata files but the table's newest one.

    They are its predecessors, a hundred at most as archives set it, what a run wrote that was
    killed while it committed, and those of a second catalog.
    """
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import FromInputFile

    newest = _name(table.metadata_location)
    for file in ObjectStore(home).files(METADATA):
        if not file.path.endswith(METADATA_SUFFIX) or _name(file.path) == newest:
            continue
        try:
            yield FromInputFile.table_metadata(table.io.new_input(home.file(file.path)))
        except FileNotFoundError:  # a commit has removed the oldest one meanwhile
            continue
        except (ValidationError, ValueError) as error:
            raise TableDamaged(
                f"{home.file(file.path)} cannot be read, so no file was removed: move it away if "
                "it is not the table's"
            ) from error


def _name(path: str) -> str:
    return path.rpartition("/")[2]
