"""The rows of each queue are read in order and once, whatever the layout of the files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.intervals import OffsetSet
from roquet.lake.queue_offsets import QueueKey
from roquet.model.errors import ConfigError
from roquet.spark.jobs.replay.archive_scan import (
    RowFilter,
    filter_rows,
    first_rows,
    read_rows,
    scan_files,
)

ALL = RowFilter()


def table(places: list[tuple[str, int, int]], **more: Any) -> pa.Table:
    brokers, ids, offsets = zip(*places, strict=True) if places else ((), (), ())
    return pa.table(
        {
            "broker": pa.array(brokers, pa.string()),
            "queue_id": pa.array(ids, pa.int32()),
            "queue_offset": pa.array(offsets, pa.int64()),
            "body": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "stored_at": pa.array(
                [offset * 1_000_000 for offset in offsets], pa.timestamp("us", "UTC")
            ),
            **more,
        }
    )


def write_files(root: Path, *tables: pa.Table) -> list[str]:
    files = [root / f"{number}.parquet" for number in range(len(tables))]
    for file, rows in zip(files, tables, strict=True):
        pq.write_table(rows, file)
    return [str(file) for file in files]


def read(
    files: list[str], row_filter: RowFilter = ALL, there: Mapping[QueueKey, OffsetSet] | None = None
) -> dict[QueueKey, list[int]]:
    known = there or {}
    return {
        queue_rows.source: [
            offset
            for batch in read_rows(
                queue_rows, row_filter, known.get(queue_rows.source, OffsetSet())
            )
            for offset in batch["queue_offset"].to_pylist()
        ]
        for queue_rows in scan_files(files, "orders", row_filter, known)
    }


places = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 30)), max_size=25
)


@given(files=st.lists(places, min_size=1, max_size=4), gone=st.sets(st.integers(0, 30)))
def test_rows_come_in_order_and_once(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[tuple[str, int, int]]],
    gone: set[int],
) -> None:
    names = write_files(tmp_path_factory.mktemp("lake"), *map(table, files))
    there = {("orders", "a", 0): OffsetSet.of(list(gone))}
    wanted: dict[QueueKey, set[int]] = {}
    for broker, number, offset in (place for file in files for place in file):
        wanted.setdefault(("orders", broker, number), set()).add(offset)
    offsets_read = read(names, ALL, there)
    assert offsets_read.keys() == wanted.keys()
    for queue, offsets in offsets_read.items():
        left = wanted[queue] - (gone if queue == ("orders", "a", 0) else set())
        assert offsets == sorted(left)
    for queue_rows in scan_files(names, "orders", ALL, there):
        assert queue_rows.rows == len(offsets_read[queue_rows.source])
        assert queue_rows.rows + queue_rows.already_sent == len(wanted[queue_rows.source])


@given(files=st.lists(places, min_size=1, max_size=3), limit=st.integers(1, 12))
def test_a_limit_chooses_the_rows_that_were_stored_first(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[str, int, int]]], limit: int
) -> None:
    """Whatever the files are, and whether some of them were sent already."""
    names = write_files(tmp_path_factory.mktemp("lake"), *map(table, files))
    ordered = sorted({(at, broker, number) for file in files for broker, number, at in file})
    chosen = {(broker, number, at) for at, broker, number in ordered[:limit]}
    there = {("orders", "a", 0): OffsetSet.of([0, 1, 2])}
    found = scan_files(names, "orders", ALL, there, limit=limit)
    rows = {
        (*queue_rows.source[1:], offset)
        for queue_rows in found
        for batch in read_rows(queue_rows, ALL, there.get(queue_rows.source, OffsetSet()))
        for offset in batch["queue_offset"].to_pylist()
    }
    sent = {place for place in chosen if place[:2] == ("a", 0) and place[2] <= 2}
    assert rows == chosen - sent
    assert sum(queue_rows.rows for queue_rows in found) == len(rows)
    assert sum(queue_rows.already_sent for queue_rows in found) == len(sent)


def test_the_first_of_many_rows_are_found_batch_by_batch(tmp_path: Path) -> None:
    later, sooner = (
        table([("a", queue, at) for at in range(first, first + 6_000)])
        for queue, first in ((0, 6_000), (1, 0))
    )
    found = first_rows(write_files(tmp_path, later, sooner), "orders", ALL, 10)
    assert {queue: len(rows) for queue, rows in found.items()} == {("orders", "a", 1): 10}


def test_files_that_follow_one_another_are_read_a_little_at_a_time(tmp_path: Path) -> None:
    files = write_files(
        tmp_path, table([("a", 0, 5), ("a", 0, 6)]), table([("a", 0, 1), ("a", 0, 2)])
    )
    [queue_rows] = scan_files(files, "orders", ALL, {})
    assert [(part.files, part.is_sorted) for part in queue_rows.groups] == [
        ((files[1],), True),
        ((files[0],), True),
    ]


def test_files_whose_ranges_meet_are_read_together(tmp_path: Path) -> None:
    """A day that holds a message of the next one, because a clock was set back."""
    first = table([("a", 0, at) for at in (0, 1, 3)])
    second = table([("a", 0, at) for at in (2, 4)])
    files = write_files(tmp_path, first, second)
    [queue_rows] = scan_files(files, "orders", ALL, {})
    assert len(queue_rows.groups) == 1
    assert read(files) == {("orders", "a", 0): [0, 1, 2, 3, 4]}


def test_times_choose(tmp_path: Path) -> None:
    files = write_files(tmp_path, table([("a", 0, at) for at in range(10)]))
    row_filter = RowFilter(from_ms=3_000, until_ms=7_000)
    assert read(files, row_filter) == {("orders", "a", 0): [3, 4, 5, 6]}


def test_topics_choose(tmp_path: Path) -> None:
    rows = table([("a", 0, at) for at in (1, 1, 2)], topic=["orders", "bills", "bills"])
    files = write_files(tmp_path, rows)
    assert read(files) == {("bills", "a", 0): [1, 2], ("orders", "a", 0): [1]}
    assert read(files, RowFilter(topic="bills")) == {("bills", "a", 0): [1, 2]}


KEYS = ["k1 k2", None, "k2", " k3 ", "k22"]


@pytest.mark.parametrize("column", ["keys", "key", "properties"])
def test_keys_choose(column: str) -> None:
    values: Any = pa.array(KEYS, pa.string())
    if column == "properties":
        pairs = [[("KEYS", key)] if key else [] for key in KEYS]
        values = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    [batch] = table([("a", 0, at) for at in range(5)], **{column: values}).to_batches()
    taken = filter_rows(batch, RowFilter(keys=("k2", "k3")))
    assert taken["queue_offset"].to_pylist() == [0, 2, 3]


def test_a_key_with_another_blank_than_u_0020_is_one_key() -> None:
    keys = pa.array(["lot\u3000A", "lot\u3000B k", "lot A"], pa.string())
    [batch] = table([("a", 0, at) for at in range(3)], keys=keys).to_batches()
    taken = filter_rows(batch, RowFilter(keys=("lot\u3000B", "A")))
    assert taken["queue_offset"].to_pylist() == [1, 2]


def test_keys_need_a_column() -> None:
    [batch] = table([("a", 0, 0)]).to_batches()
    with pytest.raises(ConfigError, match="no column has keys"):
        filter_rows(batch, RowFilter(keys=("k",)))


def test_files_without_the_columns_are_named(tmp_path: Path) -> None:
    files = write_files(tmp_path, table([("a", 0, 0)]).drop_columns(["body"]))
    with pytest.raises(ConfigError, match=r"0\.parquet has no column 'body'"):
        scan_files(files, "orders", ALL, {})


def test_times_need_a_column(tmp_path: Path) -> None:
    files = write_files(tmp_path, table([("a", 0, 0)]).drop_columns(["stored_at"]))
    assert read(files) == {("orders", "a", 0): [0]}
    with pytest.raises(
        ConfigError, match="has no column 'stored_at', so rows cannot be chosen by time"
    ):
        scan_files(files, "orders", RowFilter(from_ms=0), {})


def test_rows_without_an_identity_are_an_error(tmp_path: Path) -> None:
    rows = table([("a", 0, 0)]).set_column(0, "broker", pa.array([None], pa.string()))
    with pytest.raises(ConfigError, match="has rows without a value for 'broker'"):
        scan_files(write_files(tmp_path, rows), "orders", ALL, {})


def test_tables_of_other_programs_may_have_other_types(tmp_path: Path) -> None:
    rows = table([("a", 0, 0), ("a", 0, 1)])
    wide = rows.set_column(0, "broker", rows["broker"].cast(pa.large_string()))
    wide = wide.set_column(1, "queue_id", wide["queue_id"].cast(pa.int64()))
    assert read(write_files(tmp_path, wide)) == {("orders", "a", 0): [0, 1]}
    odd = rows.set_column(3, "body", pa.array([1, 2]))
    [file] = write_files(tmp_path, odd)
    with pytest.raises(ConfigError, match="has columns of other types"):
        read([file])
