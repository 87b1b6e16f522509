"""Lineage of an Iceberg table: whether its current snapshot descends from the last one of ours.

Offsets are a property of the table, which stays as it is when an engine sets the table back to an
older snapshot: the rows between the two would be missing for ever.

    1 ─── 2 ─── 3     ours, the last at offset 30
          └──── 4     of another engine, after a rollback to 2: offsets 20 to 30 are not in it
"""

from typing import TYPE_CHECKING

from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.snapshots import Snapshot


def check_lineage(table: "IceTable", last: "Snapshot | None", where: object) -> None:
    """Raise ConfigError when the table was set back to a snapshot before `last`, our newest one.

    Nothing is known where snapshots in between have expired, or `last` has (None).
    """
    from pyiceberg.table.snapshots import ancestors_of

    if last is None or last.sequence_number is None:
        return
    for each in ancestors_of(table.current_snapshot(), table.metadata):
        if each.snapshot_id == last.snapshot_id:
            return
        if each.sequence_number is not None and each.sequence_number < last.sequence_number:
            raise ConfigError(
                f"{where} was set back to snapshot {each.snapshot_id}, from before the archive's "
                f"last one ({last.snapshot_id}), so rows up to its offsets are missing: set it to "
                "that one again, or archive to another place"
            )
