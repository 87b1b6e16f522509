"""Dump: the content of any store file as plain values, for inspection and tests."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.model.errors import FieldError, RecordError, StoreError
from roquet.store.commit_log.log import BLANK_SIZE, CommitLog
from roquet.store.config import StoreConfig
from roquet.store.filesystem.directory_lock import store_errors
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.key_index.index import IndexFile
from roquet.store.layout import ENTRY_SIZE, FILLER_SIZE, INDEX_HEAD, file_start, unpack_checkpoint
from roquet.wire.fastjson import codec
from roquet.wire.records import record
from roquet.wire.records.record import ENTRY

DumpItem = dict[str, Any]
"""One item of a file, ready for text or JSON."""

INDEX_NAME_SIZE: Final = 17


def file_kind(path: Path) -> str | None:
    """The kind of a store file, from its name and folder; None for any other file."""
    name, folder = path.name, path.parent.name
    if name in ("checkpoint", "abort", "lock"):
        return name
    if file_start(name) is not None:
        return "queue" if folder.isdigit() else "log"
    if len(name) == INDEX_NAME_SIZE and name.isdigit():
        return "index"
    return "table" if name.endswith((".json", ".json.bak")) else None


def dump_file(
    path: Path, *, files: Files | None = None, config: StoreConfig | None = None
) -> Iterator[DumpItem]:
    """The items of a file in order. Raises StoreError for a missing or unknown file.

    `config` gives the shape of index files that do not have the default size.
    """
    files, kind = files or RealFiles(), file_kind(path)
    size = files.list(path.parent).get(path.name)
    if size is None:
        raise StoreError(f"{path} is not a file")
    if kind is None:
        raise StoreError(f"{path} is no store file: give one of commitlog, consumequeue, index …")
    return _WALKS[kind](path, size, files, config or StoreConfig())


def _map(path: Path, size: int, files: Files) -> MappedFile:
    pool = MapPool(files, 8, writable=False)
    return MappedFile(pool, path, file_start(path.name) or 0, size)


def _log(path: Path, size: int, files: Files, config: StoreConfig) -> Iterator[DumpItem]:
    """Records, and the ranges between them: damage, blank, torn or free."""
    file = _map(path, size, files)
    commit_log = CommitLog(file.pool, path.parent, size, config.log_step)
    commit_log.segments.files = [file]
    start, stop = file.start, file.start + size
    at = start
    for expected, position, partial in commit_log.walk(start, stop, start, check_crc=True):
        if expected != position:
            yield {"kind": "damage", "position": expected, "size": position - expected}
        at = position + partial[0]
        yield _record(position, bytes(file.view()[position - start : at - start]))
    if at < stop:
        is_blank = commit_log.is_blank_at(at, start) or stop - at < BLANK_SIZE
        rest = bytes(file.view()[at - start : files.data_end(path, size)]).strip(b"\x00")
        kind = "blank" if is_blank else "torn" if rest else "free"
        yield {"kind": kind, "position": at, "size": stop - at}


def _record(position: int, data: bytes) -> DumpItem:
    try:
        decoded = record.decode(data)
    except RecordError as error:
        return {"kind": "odd", "position": position, "size": len(data), "reason": str(error)}
    values: DumpItem = {"kind": "record", **msgspec.structs.asdict(decoded)}
    values["born_host"] = record.decode_host(decoded.born_host)
    values["store_host"] = record.decode_host(decoded.store_host)
    values["properties"] = record.decode_properties(decoded.properties)
    try:
        values["body"] = decoded.body.decode()
    except UnicodeDecodeError:
        values["body"] = decoded.body.hex()
        values["body_is_hex"] = True
    return values


def _queue(path: Path, size: int, files: Files, _: StoreConfig) -> Iterator[DumpItem]:
    """Entries up to the first empty one."""
    file = _map(path, size, files)
    offset = file.start // ENTRY_SIZE
    whole = size // ENTRY_SIZE * ENTRY_SIZE
    for position, length, tag_code in ENTRY.iter_unpack(file.view()[:whole]):
        if length == 0:
            return
        kind = "filler" if length == FILLER_SIZE else "entry"
        yield {
            "kind": kind,
            "offset": offset,
            "position": position,
            "size": length,
            "tag_code": tag_code,
        }
        offset += 1


def _index(path: Path, size: int, files: Files, config: StoreConfig) -> Iterator[DumpItem]:
    """The head, then the entries in order of insertion."""
    right = INDEX_HEAD.size + config.index_slots * 4 + config.index_entries * 20
    index = IndexFile(_map(path, size, files), config)
    index.load()
    yield {
        "kind": "index",
        "begin_ms": index.begin_ms,
        "end_ms": index.end_ms,
        "begin_position": index.begin_position,
        "end_position": index.end_position,
        "slots_used": index.slots_used,
        "next": index.next,
    }
    if size != right:
        raise StoreError(
            f"{path} has {size} bytes where {config.index_slots} slots and {config.index_entries}"
            f" entries make {right}: its entries cannot be told apart"
        )
    for number in range(1, index.next):
        key_hash, position, seconds, before = index.entry(number)
        yield {
            "kind": "entry",
            "number": number,
            "hash": key_hash,
            "position": position,
            "about_ms": index.begin_ms + seconds * 1000,
            "before": before,
        }


def _read(path: Path, files: Files) -> bytes:
    with store_errors(path):
        return files.read(path)


def _checkpoint(path: Path, _: int, files: Files, __: StoreConfig) -> Iterator[DumpItem]:
    checkpoint = unpack_checkpoint(_read(path, files))
    yield {"kind": "checkpoint", **msgspec.to_builtins(checkpoint)}


def _mark(path: Path, _: int, files: Files, __: StoreConfig) -> Iterator[DumpItem]:
    yield {"kind": path.name, "text": _read(path, files).decode(errors="replace")}


def _table(path: Path, _: int, files: Files, __: StoreConfig) -> Iterator[DumpItem]:
    content = _read(path, files)
    try:
        yield {"kind": "table", "content": codec.loads(content, Any)}
    except FieldError as error:
        raise StoreError(f"{path} holds no JSON: {error}") from error


_WALKS: Final[Mapping[str, Callable[[Path, int, Files, StoreConfig], Iterator[DumpItem]]]] = (
    MappingProxyType(
        {
            "log": _log,
            "queue": _queue,
            "index": _index,
            "checkpoint": _checkpoint,
            "abort": _mark,
            "lock": _mark,
            "table": _table,
        }
    )
)
