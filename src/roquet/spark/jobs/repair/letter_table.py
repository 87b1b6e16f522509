"""Letter table: archives of dead-letter and retry topics, and the files of letters made of them.

    DIR/raw/TOPIC/    an archive of the topic
    DIR/letters/      the letters; a file has the name of the archive's file that it was made of

A file of letters appears whole, and is made anew with the same rows by whoever finds it missing.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from roquet.lake.files.file_tree import FileTree, file_tree
from roquet.lake.files.parquet_writer import LEVELS
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import dataset_source
from roquet.lake.snapshot import read_snapshot
from roquet.spark.jobs.repair.dead_letters import RAW_COLUMNS, SCHEMA, transform

LETTERS: Final = "letters"

BATCH_ROWS: Final = 4_096
"""Letters that are converted at a time."""


def archive_location(root: TableLocation, topic: str) -> TableLocation:
    """Where the archive of a topic of letters lies.

    Topics of letters begin with a percent sign, which libraries spell differently in paths; so it
    is written as an at sign, which topics do not have.
    """
    path = f"raw/{quote(topic, safe='').replace('%', '@')}"
    if isinstance(root, Path):
        return root / path
    return msgspec.structs.replace(root, url=root.file(path))


def read_letters(root: TableLocation, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the table of letters; all columns by default."""
    store = file_tree(root)
    letters = store.rows(_letter_files(store), SCHEMA, columns)
    if "letter_id" not in letters.column_names:
        return letters
    # An archive whose files were merged brings its letters once more.
    _, first = np.unique(letters["letter_id"].to_numpy(), return_index=True)
    return letters if len(first) == len(letters) else letters.take(pa.array(np.sort(first)))


def convert_new_files(root: TableLocation, topic: str, tries_max: int) -> int:
    """Convert each file of an archive that was not converted before; returns the new letters."""
    store = file_tree(root)
    known = {*_letter_files(store)}
    archive = archive_location(root, topic)
    storage = {} if isinstance(root, Path) else root.options
    snapshot = read_snapshot(str(archive), topic, kind="delta", storage=storage)
    rows = 0
    for path in snapshot.paths:
        target = f"{LETTERS}/{PurePosixPath(path).name}"
        if target not in known:
            source, files = dataset_source(path, snapshot.storage)
            data = ds.dataset(source, format="parquet", filesystem=files)
            rows += _convert(data, store, target, tries_max)
    return rows


def _convert(data: ds.Dataset, store: FileTree, target: str, tries_max: int) -> int:
    """Convert messages to letters; `target` appears only once it is whole."""
    rows = 0
    level = LEVELS["zstd"]
    with (
        store.writer(target) as stream,
        pq.ParquetWriter(stream, SCHEMA, compression="zstd", compression_level=level) as writer,
    ):
        for batch in data.to_batches(columns=list(RAW_COLUMNS), batch_size=BATCH_ROWS):
            writer.write_batch(transform(batch, tries_max))
            rows += len(batch)
    return rows


def _letter_files(store: FileTree) -> list[str]:
    return [path for path in store.list_directory(LETTERS) if path.endswith(".parquet")]
