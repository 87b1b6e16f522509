"""Lineage of an Iceberg table: whether its current snapshot has all rows up to its offsets.

Offsets are a property of the table, which stays as it is when an engine sets the table back to an
older snapshot: the rows between the two would be missing for ever. Snapshots of ours that moved no
offset, as after days were removed or files merged, may be undone.

    1 ─── 2 ─── 3 ─── 4     ours: 3 the last one at offset 30, 4 merged its files; 3 is as good
          └──── 5           of another engine, after a rollback to 2: offsets 20 to 30 are not in it
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.snapshots import Snapshot


def check_lineage(table: "IceTable", whole: Sequence["Snapshot"], where: object) -> None:
    """Raise ConfigError when the table was set back to a snapshot before all of `whole`.

    These are the snapshots of ours that end at the table's offsets, the newest last. Nothing is
    known where snapshots in between have expired, or these have (empty).
    """
    from pyiceberg.table.snapshots import ancestors_of

    if not whole:
        return
    last, known = whole[-1].snapshot_id, {each.snapshot_id for each in whole}
    oldest = min(each.sequence_number or 0 for each in whole)
    current = table.current_snapshot()
    if current is None:
        raise ConfigError(_text(where, "no snapshot", last))
    for each in ancestors_of(current, table.metadata):
        if each.snapshot_id in known:
            return
        if each.sequence_number is not None and each.sequence_number < oldest:
            raise ConfigError(_text(where, f"snapshot {each.snapshot_id}", last))


def _text(where: object, found: str, last: int) -> str:
    return (
        f"{where} was set back to {found}, from before the archive's last one ({last}), so rows up "
        "to its offsets are missing: set it to that one again, or archive to another place"
    )
