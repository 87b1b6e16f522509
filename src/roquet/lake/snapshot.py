"""Table snapshots: the files and offsets of a table, read without its lock while an archive writes.

Directories of Parquet files and Delta tables that are no archives can be read, too, when they have
the columns that identify messages; only an archive knows the offsets at which it begins and ends.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from roquet.lake.files.staging import KIND_MARKERS
from roquet.lake.kinds.delta.delta_table import identity_of, retired_app
from roquet.lake.kinds.delta.delta_table import topic_ids as delta_topic_ids
from roquet.lake.kinds.delta.storage import opened_log
from roquet.lake.kinds.iceberg.catalog import (
    NAMESPACE,
    catalog_of,
    check_catalog,
    check_installed,
    explained_catalog,
    name_of,
)
from roquet.lake.kinds.iceberg.iceberg_table import IDENTITY, RETIRED, STATE
from roquet.lake.kinds.iceberg.layout import plain_paths
from roquet.lake.kinds.iceberg.table_place import check_place, local_path
from roquet.lake.objects.object_location import ObjectLocation, TableLocation, storage_of
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.open_table import check_kind, check_kind_name, directory, table_location
from roquet.lake.queue_offsets import QueueOffsets, from_json
from roquet.lake.table import ArchiveIdentity, TableNote
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a table at one moment."""

    topic: str = ""
    """The archive's topic; for other tables the one that the caller gave, or empty."""
    kind: str
    """delta or iceberg; files for Parquet files without an archive."""
    paths: tuple[str, ...]
    """Paths, or URLs of an object store."""
    storage: Mapping[str, str] = {}
    """The options of the object store."""
    end: QueueOffsets | None = None
    """Offsets at which the archive ends; None for other tables."""
    begin: QueueOffsets | None = None
    """Offsets at which the archive began; None for other tables and when no longer known."""
    number: int = 0
    """The number of the archive's last commit."""
    name: str = ""
    """Of an Iceberg table: its name in its catalog."""
    topic_ids: Mapping[str, str] = {}
    """Ids of the archived topic by broker, where known."""


def read_snapshot(
    target: str,
    topic: str = "",
    *,
    kind: str | None = None,
    name: str = "",
    catalog: Mapping[str, str] = {},
    storage: Mapping[str, str] = {},
) -> TableSnapshot:
    """The table's present content; without `kind` the directory is inspected for it.

    Raises ConfigError when it is no table or the archive of another topic.
    """
    if kind is not None:
        check_kind_name(kind)
    root = table_location(target, storage)
    if isinstance(root, Path) and not root.exists() and not catalog:
        raise ConfigError(f"there is no {root}: give the directory of a table")
    kind = kind or ("iceberg" if catalog else kind_of(root))
    if isinstance(root, Path):
        mark = KIND_MARKERS.get(kind, "")
        if not catalog and not (root / mark).exists():
            raise ConfigError(f"{root} is no {kind} table: it has no {mark}")
    else:
        check_kind(root, kind)
    if kind == "iceberg":
        check_installed()
        with explained_catalog(root, is_reader=True):
            snapshot = _iceberg_snapshot(root, topic, name, catalog)
    elif kind == "delta":
        with opened_log(root) as log:
            snapshot = _delta_snapshot(log, root)
    else:
        snapshot = _files(Path(str(root)))
    if topic and snapshot.topic not in ("", topic):
        raise ConfigError(f"{root} is the archive of topic {snapshot.topic!r}, not of {topic!r}")
    return snapshot if snapshot.topic else msgspec.structs.replace(snapshot, topic=topic)


def kind_of(root: TableLocation) -> str:
    """The kind of the table at a location; files when nothing says otherwise."""
    if isinstance(root, ObjectLocation):
        return "delta"
    return next((kind for kind, mark in KIND_MARKERS.items() if (root / mark).exists()), "files")


def _delta_snapshot(log: "Log", root: TableLocation) -> TableSnapshot:
    paths = log.file_uris()
    if isinstance(root, Path):
        paths = [str(directory(uri)) for uri in paths]
    found = TableSnapshot(kind="delta", paths=tuple(sorted(paths)), storage=storage_of(root))
    try:
        topic = identity_of(log, root).topic
    except ConfigError:  # no archive, but perhaps with the right columns
        return found
    notes = [entry["roquet"] for entry in log.history() if "roquet" in entry]
    entries = [msgspec.convert(note, TableNote) for note in notes]
    app = f"roquet/{topic}"
    queues = from_json(entries[0].offsets) if entries else {}
    ends = {q: log.transaction_version(f"{app}/{q[1]}/{q[2]}") for q in queues}
    return msgspec.structs.replace(
        found,
        topic=topic,
        end={queue: end for queue, end in ends.items() if end is not None},
        begin=None
        if log.transaction_version(retired_app(topic)) is not None
        else next((from_json(entry.offsets) for entry in entries if entry.number == 1), None),
        number=log.transaction_version(app) or 0,
        topic_ids=delta_topic_ids(log, topic, queues),
    )


def _iceberg_snapshot(
    root: TableLocation, topic: str, name: str, catalog: Mapping[str, str]
) -> TableSnapshot:
    if isinstance(root, ObjectLocation):
        ObjectStore(root).check_bucket()
        check_catalog(root, catalog)
    with closing(catalog_of(root, catalog)) as opened:
        table = _table(opened, root, name or (name_of(topic) if topic else ""))
    check_place(root, table.location())
    paths = plain_paths(table, root)
    if isinstance(root, Path):
        paths = [str(local_path(path)) for path in paths]
    found = TableSnapshot(
        kind="iceberg",
        paths=tuple(sorted(paths)),
        storage=storage_of(root),
        name=".".join(table.name()),
    )
    identity = table.properties.get(IDENTITY)
    if identity is None:
        return found
    state = table.properties.get(STATE)
    now = msgspec.json.decode(state, type=TableNote) if state else TableNote(0, {})
    texts = [one.summary["roquet.offsets"] for one in table.snapshots()
             if one.summary is not None and one.summary["roquet.number"] == "1"]  # fmt: skip
    first = msgspec.json.decode(texts[0], type=TableNote) if texts and texts[0] else None
    return msgspec.structs.replace(
        found,
        topic=msgspec.json.decode(identity, type=ArchiveIdentity).topic,
        end=from_json(now.offsets),
        begin=from_json(first.offsets) if first and RETIRED not in table.properties else None,
        number=now.number,
        topic_ids=now.topic_ids,
    )


def _table(catalog: Any, root: TableLocation, name: str) -> Any:
    """The table of that name; without a name the only table in our namespace."""
    from pyiceberg.exceptions import NoSuchTableError

    if not name:
        names = sorted(".".join(parts) for parts in catalog.list_tables(NAMESPACE))
        if len(names) != 1:
            text = f"{root} holds the tables {', '.join(names)}: name one (--table)"
            raise ConfigError(
                text if names else f"{root} holds no archive's table: name the table (--table)"
            )
        [name] = names
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        raise ConfigError(f"{root} has no table {name}") from None


def _files(root: Path) -> TableSnapshot:
    """Parquet files of another writer: a single file, or all files below a directory."""
    files = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    # Spark ignores paths of which a part begins with an underscore or a dot.
    paths = [
        path
        for path in files
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    ]
    if not paths:
        raise ConfigError(f"{root} holds neither Parquet files nor an archive")
    return TableSnapshot(kind="files", paths=tuple(map(str, paths)))
