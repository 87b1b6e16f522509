"""Delta entries: the `commitInfo` of single entries of a table's log, by their versions.

    _delta_log/00000000000000000007.json    {"commitInfo":{"operation":"RESTORE",…}}
                                            {"remove":{…}}

The Delta protocol does not ask for a `commitInfo`. deltalake's history leaves out entries without
one, and counts its versions down from the newest all the same, so those of older entries are wrong.
"""

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.lake.kinds.delta.restores import Entry
from roquet.lake.kinds.delta.storage import LOG
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import READERS, explained_read, open_source
from roquet.lake.table import TableDamaged


class _Action(msgspec.Struct):
    """A line of an entry."""

    info: dict[str, Any] | None = msgspec.field(name="commitInfo", default=None)


_ACTIONS: Final = msgspec.json.Decoder(_Action)


def entries(root: TableLocation, newest: int) -> Iterator[Entry]:
    """The entries of a table from this version back, to the oldest that the log still has.

    They are read as they are asked for: the newest alone, then a few at a time. Raises TableDamaged
    for one that is no JSON, and errors of the object store or of the directory's file system.
    """
    with ThreadPoolExecutor(READERS) as readers:
        version, count = newest, 1
        while version >= 0:
            versions = range(version, max(-1, version - count), -1)
            for entry in readers.map(partial(_entry, root), versions):
                if entry is None:
                    return
                yield entry
            version, count = version - count, READERS


def _entry(root: TableLocation, version: int) -> Entry | None:
    """One entry; None when the log does not have it any more."""
    try:
        with _lines(root, f"{LOG}/{version:020}.json") as lines:
            found = (_ACTIONS.decode(line).info for line in lines if not line.isspace())
            info = next((each for each in found if each is not None), {})
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise TableDamaged(f"entry {version} of the Delta log of {root}: {error}") from error
    return {**info, "version": version}


@contextmanager
def _lines(root: TableLocation, path: str) -> Iterator[Iterable[bytes]]:
    """The lines of an entry, which may be long: it is not read whole."""
    if isinstance(root, Path):
        with (root / path).open("rb") as file:
            yield file
        return
    url = root.file(path)
    with (
        explained_read(url, root.options),
        open_source(url, root.options) as file,
        io.BufferedReader(file) as lines,
    ):
        yield lines
