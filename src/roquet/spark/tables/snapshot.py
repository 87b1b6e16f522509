"""Looking: what a table holds, seen without holding it: an archive may write on meanwhile.

Any directory of Parquet files and any Delta table will do, too, when it has the columns that say
which message a row is; only an archive knows where it began and how far it has come.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import suggest
from roquet.spark.queue_offsets import OffsetsJson, QueueOffsets, from_json
from roquet.spark.tables.open_table import KINDS, directory
from roquet.spark.tables.staging import HIDDEN, KIND_MARKERS
from roquet.spark.tables.table import ArchiveIdentity, TableCommit, TableConflict

ATTEMPTS: Final = 50
PAUSE_MS: Final = 200
"""A commit is published in moments; one that takes ten seconds was killed on its way."""


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A table at one moment."""

    topic: str = ""
    """Of an archive; else what it was said to be, which may be nothing."""
    kind: str
    """parquet, delta, iceberg; files when it is none of these."""
    paths: tuple[str, ...]
    end: QueueOffsets | None = None
    """How far the archive has come; None when it is none."""
    begin: QueueOffsets | None = None
    """Where it began; None, too, when that is forgotten."""
    number: int = 0
    topic_ids: Mapping[str, str] = {}
    """By broker which topic of that name it is the archive of, as far as it knows."""


class _Note(msgspec.Struct, frozen=True):
    number: int
    offsets: OffsetsJson
    topic_ids: Mapping[str, str] = {}


def read_snapshot(
    target: str,
    topic: str = "",
    *,
    kind: str | None = None,
    name: str = "",
    catalog: Mapping[str, str] = {},
    pause: Callable[[int], object] = lambda ms: time.sleep(ms / 1000),
) -> TableSnapshot:
    """What the table is now; without a kind the directory says which one it is.

    ConfigError when it is no table, or the archive of another topic.
    """
    root = directory(target)
    if not root.exists() and not catalog:
        raise ConfigError(f"there is no {root}: give the directory of a table")
    found = kind or ("iceberg" if catalog else kind_of(root))
    if found not in KINDS:
        raise ConfigError(f"no kind of table {found!r}{suggest(found, KINDS)}")
    if found != "parquet" and not catalog and not (root / KIND_MARKERS[found]).exists():
        raise ConfigError(f"{root} is no {found} table: it has no {KIND_MARKERS[found]}")
    if found == "iceberg":
        held = _iceberg(root, topic, name, catalog)
    elif found == "delta":
        held = _delta(root)
    else:
        held = _parquet(root, pause) if (root / KIND_MARKERS["parquet"]).exists() else _files(root)
    if topic and held.topic not in ("", topic):
        raise ConfigError(f"{root} is the archive of topic {held.topic!r}, not of {topic!r}")
    return held if held.topic else msgspec.structs.replace(held, topic=topic)


def kind_of(root: Path) -> str:
    """The kind of the table in a directory."""
    return next((kind for kind, mark in KIND_MARKERS.items() if (root / mark).exists()), "parquet")


def _parquet(root: Path, pause: Callable[[int], object]) -> TableSnapshot:
    """A moment in which no commit is on its way."""
    identity = msgspec.json.decode(
        (root / KIND_MARKERS["parquet"]).read_bytes(), type=ArchiveIdentity
    )
    for _ in range(ATTEMPTS):
        newest = _newest(root)
        paths = tuple(str(path) for path in sorted(root.glob("day=*/*.parquet")))
        if not _is_placing(root, newest) and _newest(root) == newest:
            break
        pause(PAUSE_MS)
    else:
        raise TableConflict(
            f"the last commit of {root} is not done: if no archive runs that does it, "
            "`roquet spark archive … --clean` will"
        )
    first = _commit(root, 1)
    return TableSnapshot(
        topic=identity.topic,
        kind="parquet",
        paths=paths,
        end=from_json(newest.after) if newest else {},
        begin=from_json(first.after) if first else None,
        number=newest.number if newest else 0,
        topic_ids=newest.topic_ids if newest else {},
    )


def _is_placing(root: Path, newest: TableCommit | None) -> bool:
    """Whether a commit that is decided has files on their way: then its attempt is there."""
    return newest is not None and (root / HIDDEN / "staging" / newest.attempt).is_dir()


def _newest(root: Path) -> TableCommit | None:
    numbers = [
        int(path.stem)
        for path in (root / HIDDEN / "commits").glob("*.json")
        if path.stem.isdecimal()
    ]
    return _commit(root, max(numbers)) if numbers else None


def _commit(root: Path, number: int) -> TableCommit | None:
    path = root / HIDDEN / "commits" / f"{number:010}.json"
    return msgspec.json.decode(path.read_bytes(), type=TableCommit) if path.exists() else None


def _delta(root: Path) -> TableSnapshot:
    from roquet.spark.tables import delta

    delta.check_installed()
    from deltalake import DeltaTable as Log

    log = Log(str(root))
    paths = tuple(sorted(str(directory(uri)) for uri in log.file_uris()))
    try:
        topic = delta.identity_of(log, root).topic
    except ConfigError:  # somebody else's, with the right columns perhaps
        return TableSnapshot(kind="delta", paths=paths)
    notes = [entry["roquet"] for entry in log.history() if "roquet" in entry]
    found = [msgspec.convert(note, _Note) for note in notes]
    app = f"roquet/{topic}"
    queues = from_json(found[0].offsets) if found else {}
    ends = {q: log.transaction_version(f"{app}/{q[1]}/{q[2]}") for q in queues}
    return TableSnapshot(
        topic=topic,
        kind="delta",
        paths=paths,
        end={queue: end for queue, end in ends.items() if end is not None},
        begin=next((from_json(one.offsets) for one in found if one.number == 1), None),
        number=log.transaction_version(app) or 0,
        topic_ids=delta.topic_ids(log, topic, queues),
    )


def _iceberg(root: Path, topic: str, name: str, catalog: Mapping[str, str]) -> TableSnapshot:
    from roquet.spark.tables import iceberg

    iceberg.check_installed()
    with closing(iceberg.catalog_of(root, catalog)) as found:
        table = _table(found, root, name or (iceberg.name_of(topic) if topic else ""))
    paths = []
    for task in table.scan().plan_files():
        if task.delete_files:
            raise ConfigError(f"{root} keeps deleted rows in files of their own: compact it first")
        paths.append(str(iceberg.local_path(task.file.file_path)))
    identity = table.properties.get(iceberg.IDENTITY)
    if identity is None:
        return TableSnapshot(kind="iceberg", paths=tuple(sorted(paths)))
    state = table.properties.get(iceberg.STATE)
    now = msgspec.json.decode(state, type=_Note) if state else _Note(0, {})
    texts = [one.summary["roquet.offsets"] for one in table.snapshots()
             if one.summary is not None and one.summary["roquet.number"] == "1"]  # fmt: skip
    first = msgspec.json.decode(texts[0], type=_Note) if texts and texts[0] else None
    return TableSnapshot(
        topic=msgspec.json.decode(identity, type=ArchiveIdentity).topic,
        kind="iceberg",
        paths=tuple(sorted(paths)),
        end=from_json(now.offsets),
        begin=from_json(first.offsets) if first else None,
        number=now.number,
        topic_ids=now.topic_ids,
    )


def _table(catalog: Any, root: Path, name: str) -> Any:
    """The table of that name; without one the only one that there is."""
    from pyiceberg.exceptions import NoSuchTableError

    from roquet.spark.tables.iceberg import NAMESPACE

    if not name:
        names = sorted(".".join(parts) for parts in catalog.list_tables(NAMESPACE))
        if len(names) != 1:
            text = f"{root} holds the tables {', '.join(names)}: name one (--table)"
            raise ConfigError(
                text if names else f"{root} holds no table of ours: name it (--table)"
            )
        [name] = names
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        raise ConfigError(f"{root} has no table {name}") from None


def _files(root: Path) -> TableSnapshot:
    """Parquet files that something else has written; one of them will do."""
    found = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    paths = [path for path in found if path == root or not _is_hidden(path, root)]
    if not paths:
        raise ConfigError(f"{root} holds no Parquet files, and no archive")
    return TableSnapshot(kind="files", paths=tuple(map(str, paths)))


def _is_hidden(path: Path, root: Path) -> bool:
    """As Spark sees it: names that begin with a line or a dot."""
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
