"""Listing: the Parquet files that a table of any kind shows now, and whose archive it is.

Reading holds nobody up: an archive may write meanwhile, and what it adds is not seen.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import nearest
from roquet.spark.tables.opening import KINDS, directory
from roquet.spark.tables.staging import MARKS
from roquet.spark.tables.table import Identity


class Listing(msgspec.Struct, frozen=True):
    """The files, and the topic of the archive; None when it is none of ours."""

    files: tuple[str, ...]
    topic: str | None = None


def listed(
    source: str, kind: str | None = None, *, name: str = "", catalog: Mapping[str, str] = {}
) -> Listing:
    """What there is to be read; without a kind the directory says which one it is."""
    root = directory(source)
    if not root.exists() and not catalog:
        raise ConfigError(f"{root} is not there: give the directory of a table")
    found = kind or kind_of(root)
    if found not in KINDS:
        raise ConfigError(f"no kind of table {found!r}{nearest(found, KINDS)}")
    if found == "delta":
        return _delta(root)
    return _iceberg(root, name, catalog) if found == "iceberg" else _parquet(root)


def kind_of(root: Path) -> str:
    """The kind of the table in a directory."""
    return next((kind for kind, mark in MARKS.items() if (root / mark).exists()), "parquet")


def _parquet(root: Path) -> Listing:
    if root.is_file():
        return Listing((str(root),))
    note = root / MARKS["parquet"]
    if note.exists():
        identity = msgspec.json.decode(note.read_bytes(), type=Identity)
        return Listing(tuple(map(str, sorted(root.glob("day=*/*.parquet")))), identity.topic)
    files = sorted(path for path in root.rglob("*.parquet") if _is_shown(path.relative_to(root)))
    if not files:
        raise ConfigError(f"{root} holds no table: there is no Parquet file in it")
    return Listing(tuple(map(str, files)))


def _is_shown(path: Path) -> bool:
    """Whether Spark would see it, too."""
    return not any(part.startswith(("_", ".")) for part in path.parts)


def _delta(root: Path) -> Listing:
    from roquet.spark.tables import delta

    delta.check_installed()
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    try:
        topic: str | None = delta.identity_of(table, root).topic
    except ConfigError:  # somebody else's, with the right columns perhaps
        topic = None
    files = (str(directory(uri)) for uri in table.file_uris())
    return Listing(tuple(sorted(files)), topic)


def _iceberg(root: Path, name: str, catalog: Mapping[str, str]) -> Listing:
    from roquet.spark.tables import iceberg

    iceberg.check_installed()
    with closing(iceberg.catalog_of(root, catalog)) as found:
        tables = [name] if name else _names(found.list_tables(iceberg.NAMESPACE))
        if len(tables) != 1:
            text = f"{root} holds the tables {', '.join(tables)}: name one (--table)"
            raise ConfigError(text)
        table = found.load_table(tables[0])
        note = table.properties.get(iceberg.IDENTITY)
        topic = msgspec.json.decode(note, type=Identity).topic if note else None
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise ConfigError(f"{tables[0]} has rows deleted in place: compact it first")
        files = (str(iceberg.local_path(task.file.file_path)) for task in tasks)
        return Listing(tuple(sorted(files)), topic)


def _names(tables: Iterable[tuple[str, ...]]) -> list[str]:
    return sorted(".".join(parts) for parts in tables)
