"""Maintenance: old days go, small files are merged, versions expire; a preview only counts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.conftest import commit_rows

from roquet.lake.columns.partitioning import NO_DAY, schema_of
from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.files.staging import PARQUET_ARCHIVE
from roquet.lake.maintain.maintenance import (
    DAY_MS,
    HOUR_MS,
    MaintenanceReport,
    Params,
    first_kept_day,
    retired_files,
    run,
    run_here,
)
from roquet.lake.open_table import KINDS, open_table
from roquet.lake.snapshot import read_snapshot
from roquet.lake.states.state_table import StateIdentity, open_state_table
from roquet.lake.table import ArchiveIdentity, DataFile, TableConflict
from roquet.model.errors import ConfigError

COLUMNS = ("broker", "queue_id", "queue_offset", "stored_at")
QUEUE = ("orders", "broker-a", 0)
TODAY = datetime(2026, 2, 10, 15, tzinfo=UTC)
NOW_MS = int(TODAY.timestamp() * 1000)
DAYS = 4
"""Days of a table, each with two commits of a message."""

MESSAGES = 2 * DAYS

LATER_MS = 100 * 365 * DAY_MS


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The kind and the place of a table of some days."""
    root = tmp_path / "lake"
    with open_table(request.param, str(root), wanted()) as opened:
        commit_rows(opened, {QUEUE: 0})
        for at in range(MESSAGES):
            moment = TODAY - timedelta(days=DAYS - 1 - at // 2)
            row = {"broker": "broker-a", "queue_id": 0, "queue_offset": at, "stored_at": moment}
            rows = pa.RecordBatch.from_pylist([row], schema_of(COLUMNS))
            commit_rows(opened, {QUEUE: at + 1}, rows)
    return request.param, str(root)


def wanted() -> ArchiveIdentity:
    return ArchiveIdentity(topic="orders", columns=COLUMNS)


def maintain(place: tuple[str, str], now_ms: int = NOW_MS, **params: Any) -> MaintenanceReport:
    arguments = {"target": place[1], "name": "roquet.orders" * (place[0] == "iceberg"), **params}
    return run(Params(**arguments), run_here, now_ms)


def offsets(place: tuple[str, str]) -> list[int]:
    snapshot = read_snapshot(place[1], "orders")
    rows = [pq.read_table(path, partitioning=None) for path in snapshot.paths]
    return sorted(pa.concat_tables(rows)["queue_offset"].to_pylist())


def test_a_preview_says_in_numbers_what_would_be_done_and_does_none_of_it(
    table: tuple[str, str],
) -> None:
    before = sorted(Path(table[1]).rglob("*.parquet"))
    report = maintain(table, keep_days=1)
    assert (report.topic, report.kind, report.files) == ("orders", table[0], MESSAGES)
    assert (report.retired_before, report.retired_files, report.retired_rows) == (
        "2026-02-09",
        4,
        4,
    )
    assert (report.merged_files, report.groups, report.left_files) == (4, 2, 2)
    assert report.retired_bytes + report.merged_bytes == report.bytes
    assert sorted(Path(table[1]).rglob("*.parquet")) == before
    assert offsets(table) == list(range(MESSAGES))


def test_old_days_are_removed_and_small_files_merged(table: tuple[str, str]) -> None:
    preview = maintain(table, keep_days=1)
    done = maintain(table, keep_days=1, is_preview=False)
    assert (done.retired_files, done.merged_files, done.left_files) == (4, 4, preview.left_files)
    assert offsets(table) == list(range(4, MESSAGES))
    snapshot = read_snapshot(table[1], "orders")
    assert (snapshot.begin, snapshot.end) == (None, {QUEUE: MESSAGES})
    again = maintain(table, keep_days=1)
    assert (again.retired_files, again.merged_files, again.left_files) == (0, 0, 2)


def test_replaced_files_go_after_their_time(table: tuple[str, str]) -> None:
    maintain(table, is_preview=False)
    stays = {path.name for path in Path(table[1]).rglob("*.parquet")}
    assert len(stays) == MESSAGES + DAYS, "versions of before still have them"
    report = maintain(table, LATER_MS, versions_ms=HOUR_MS)
    done = maintain(table, LATER_MS, versions_ms=HOUR_MS, is_preview=False)
    assert done.expired_files == report.expired_files >= MESSAGES
    assert (report.expired_versions > 0) == (table[0] == "iceberg")
    assert len(list(Path(table[1]).rglob("*.parquet"))) == DAYS
    assert offsets(table) == list(range(MESSAGES))


def test_a_table_that_an_archive_writes_to_is_left_alone(table: tuple[str, str]) -> None:
    with (
        open_table(table[0], table[1], wanted()),
        pytest.raises(TableConflict, match="another archive writes to"),
    ):
        maintain(table, is_preview=False)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"keep_days": 0}, "--keep: a day at least"),
        ({"versions_ms": HOUR_MS - 1}, "--snapshots: an hour at least"),
    ],
)
def test_times_that_are_too_short_are_refused(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(Params(target="lake", **params), run_here, NOW_MS)


def test_only_archives_are_maintained(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="only archives and tables of the latest state"):
        run(Params(target=str(tmp_path)), run_here, NOW_MS)


def test_a_parquet_archive_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / PARQUET_ARCHIVE).parent.mkdir()
    (tmp_path / PARQUET_ARCHIVE).write_text("{}")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"is an archive of kind parquet, .* a new Delta archive"):
        run(Params(target=str(tmp_path)), run_here, NOW_MS)


def test_days_are_kept_besides_the_present_one() -> None:
    assert first_kept_day(NOW_MS, None) == ""
    assert first_kept_day(NOW_MS, 1) == "2026-02-09"
    assert first_kept_day(NOW_MS, 10**9) == "0001-01-01"


def test_files_without_a_day_stay() -> None:
    files = [
        DataFile(name="a", day=day, rows=1, size=1)
        for day in ("2026-01-01", "2026-01-02", NO_DAY, "kind=x", "", "20260101")
    ]
    assert [file.day for file in retired_files(files, "2026-01-02")] == ["2026-01-01"]
    assert retired_files(files, "") == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_the_latest_state_is_maintained(tmp_path: Path, kind: str) -> None:
    """Messages without a key add a small file in each commit."""
    wanted_state = StateIdentity(topic="orders", buckets=2, deletes="keep")
    with open_state_table(kind, tmp_path / "lake", wanted_state) as opened:
        schema = opened.row_schema()
        commit_rows(opened, {QUEUE: 0})
        for at in range(4):
            row = {"queue_id": 0, "queue_offset": at, "stored_at": TODAY, "key": None}
            rows = pa.RecordBatch.from_pylist([{**row, "broker": "broker-a"}], schema)
            directory = opened.begin()
            writer = PartitionedWriter(directory, schema, scheme=opened.division)
            writer.write(rows)
            opened.commit(opened.state().then({QUEUE: at + 1}, directory.name, writer.close(), ()))
    place = (kind, str(tmp_path / "lake"))
    assert run(Params(target=place[1]), run_here, NOW_MS).merged_files == 4, "a preview"
    report = run(Params(target=place[1], is_preview=False), run_here, NOW_MS)
    assert (report.is_state, report.topic, report.merged_files) == (True, "orders", 4)
    assert report.left_files == 1
    assert offsets(place) == [0, 1, 2, 3]
    with open_state_table(kind, tmp_path / "lake", wanted_state) as opened:
        assert opened.state().offsets == {QUEUE: 4}
    with pytest.raises(ConfigError, match="has no days"):
        run(Params(target=place[1], keep_days=1), run_here, NOW_MS)
