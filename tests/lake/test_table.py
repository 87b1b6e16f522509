"""Every kind of table holds each message once, whenever the process is killed."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.lake.conftest import TableKind, commit_rows

from roquet.lake import table as tables
from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.columns.body_types import FIELD_TYPES
from roquet.lake.columns.partition_scheme import PartitionScheme
from roquet.lake.files.disk import Disk
from roquet.lake.maintain.maintenance import retire
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import ArchiveIdentity, TableConflict, TableState
from roquet.model.errors import ConfigError

STEPS_MAX = 200
"""More than any course of events has."""

EVERY = pytest.param(1, marks=pytest.mark.spark_suite, id="every step")
SOME = pytest.param(None, id="some steps")
STRIDES = {"delta": 5, "iceberg": 9}
""" `make test` has no time for all of them."""


def test_a_new_table_has_no_offsets(kind: TableKind) -> None:
    with kind.open() as table:
        assert table.state(kind.queues) == TableState(0, {})
        assert table.files() == []
        assert table.identity == kind.wanted


def test_a_commit_publishes_rows_and_offsets(kind: TableKind) -> None:
    with kind.open() as table:
        kind.archive(table, 0, 5)
        kind.archive(table, 5, 25)
        assert table.state(kind.queues) == TableState(2, kind.offsets(25))
    assert kind.places() == kind.whole(25)
    assert kind.state() == TableState(2, kind.offsets(25)), "also for the next run"


def test_a_table_keeps_the_topic_ids_of_its_offsets(kind: TableKind) -> None:
    ids = {"broker-a": "1763836680000-17", "broker-b": "adopted-1763836680000-3"}
    with kind.open() as table:
        state = table.state(kind.queues)
        table.commit(state.then(kind.offsets(7), table.begin().name, (), (), ids))
        state = table.state(kind.queues)
        table.commit(state.then(kind.offsets(9), table.begin().name, (), ()))
    assert kind.state() == TableState(2, kind.offsets(9), ids)


def test_rows_lie_in_the_day_in_which_they_were_stored(kind: TableKind) -> None:
    with kind.open() as table:
        kind.archive(table, 0, 12)
        days = [(file.day, file.rows) for file in table.files()]
        assert sorted(days) == [("2026-01-31", 10)] * 2 + [("2026-02-01", 2)] * 2
        assert all(
            Path(table.path(file)).parent.name == f"day={file.day}" for file in table.files()
        )


def test_rows_are_read_back_as_written(kind: TableKind) -> None:
    kind.fill(3)
    rows = kind.rows().select(kind.wanted.columns).sort_by([("broker", "ascending")]).to_pylist()
    for row, sent in zip(rows, kind.batch(range(3)).to_pylist(), strict=False):
        assert {**row, "properties": dict(row["properties"])} == {
            **sent,
            "properties": dict(sent["properties"]),
        }


def test_a_commit_of_nothing_moves_the_offsets_alone(kind: TableKind) -> None:
    with kind.open() as table:
        state = table.state(())
        table.commit(state.then(kind.offsets(7), table.begin().name, (), ()))
    assert kind.state() == TableState(1, kind.offsets(7))
    assert kind.on_disk() == set()


def test_rows_without_a_time_have_a_day_of_their_own(kind: TableKind) -> None:
    timeless = kind.batch([0])
    place = timeless.schema.get_field_index("stored_at")
    timeless = timeless.set_column(
        place, timeless.schema.field(place), pa.nulls(1, timeless.schema.types[place])
    )
    with kind.open() as table:
        directory = table.begin()
        files = kind.written(directory, timeless, kind.batch([1]))
        table.commit(table.state(()).then({kind.queues[0]: 2}, directory.name, files, ()))
        assert sorted(file.day for file in table.files()) == [
            "2026-01-31",
            "__HIVE_DEFAULT_PARTITION__",
        ]
    assert kind.places() == [("broker-a", 0, 0), ("broker-a", 0, 1)]


def test_a_second_archive_is_turned_away(kind: TableKind) -> None:
    with kind.open() as table:
        with pytest.raises(TableConflict, match="another archive writes to"):
            kind.open()
        kind.archive(table, 0, 5)
    assert kind.places() == kind.whole(5)


def test_a_commit_based_on_other_offsets_is_refused(
    kind: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two archives at once, where the file system has no locks that hold."""

    class NoLock:
        def __init__(self, *_: object) -> None:
            pass

        def release(self) -> None:
            pass

    monkeypatch.setattr("roquet.lake.files.staging.FileLock", NoLock)
    with kind.open() as first, kind.open() as second:
        kind.archive(first, 0, 5)
        stale = TableState(0, {}).then(kind.offsets(5), second.begin().name, (), ())
        with pytest.raises(TableConflict, match="at commit 1, not at 0"):
            second.commit(stale)
        kind.archive(first, 5, 9)
    assert kind.places() == kind.whole(9)
    assert kind.state() == TableState(2, kind.offsets(9))


def test_a_queue_that_the_run_did_not_know_is_not_begun_anew(kind: TableKind) -> None:
    """Its broker was away at the start, and is back."""
    known, unknown = kind.queues
    with kind.open() as table:
        kind.archive(table, 0, 5)
        state, attempt = TableState(1, {known: 5}), table.begin()
        files = kind.written(attempt, kind.batch(range(5), broker=unknown[1], queue_id=unknown[2]))
        says = r"queue 1 of .*is at offset 5, and this run began at None"
        with pytest.raises(TableConflict, match=says):
            table.commit(state.then({known: 5, unknown: 5}, attempt.name, files, ()))
    assert kind.places() == kind.whole(5)
    assert kind.state() == TableState(1, kind.offsets(5))


def test_a_table_of_another_topic_is_left_alone(kind: TableKind) -> None:
    kind.open().close()
    if kind.name == "iceberg":
        pytest.skip("an Iceberg catalog has many tables")
    with pytest.raises(ConfigError, match="archive of topic 'orders', not of 'bills'"):
        kind.open(wanted=ArchiveIdentity(topic="bills", columns=()))


def test_the_columns_of_a_table_stay_as_they_are(kind: TableKind) -> None:
    kind.open().close()
    with kind.open(wanted=ArchiveIdentity(topic="orders", columns=())) as table:
        assert table.identity == kind.wanted, "who asks for none gets these"
    with pytest.raises(ConfigError, match="has the columns topic,broker"):
        kind.open(wanted=ArchiveIdentity(topic="orders", columns=("broker", "body")))


def test_a_file_is_no_target(kind: TableKind) -> None:
    kind.root.write_text("notes")
    with pytest.raises(ConfigError, match="is a file"):
        kind.open()


def test_a_directory_of_other_files_is_left_alone(kind: TableKind) -> None:
    kind.root.mkdir()
    (kind.root / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        kind.open()
    assert [path.name for path in kind.root.iterdir()] == ["notes.txt"]


def test_files_of_killed_tasks_are_deleted_at_the_next_start(kind: TableKind) -> None:
    with kind.open() as table:
        kind.archive(table, 0, 5)
        kind.written(table.begin(), kind.batch(range(5, 9)))
    assert kind.on_disk() != kind.listed(), "after the run: left"
    kind.open().close()
    assert kind.on_disk() == kind.listed()


def test_small_files_are_merged_without_a_change_of_rows_or_offsets(kind: TableKind) -> None:
    with kind.open() as table:
        for first in range(0, 8, 2):
            kind.archive(table, first, first + 2)
        old = {file.name for file in table.files()}
        kind.merge(table, 8, table.files())
        assert len(table.files()) == 1
        assert old.isdisjoint(file.name for file in table.files())
        assert table.state(kind.queues) == TableState(5, kind.offsets(8))
        kind.archive(table, 8, 10)
    assert kind.places() == kind.whole(10)


def test_a_table_may_be_divided_by_hours(kind: TableKind) -> None:
    hourly = msgspec.structs.replace(kind.wanted, partition_by="hour")
    with kind.open(wanted=hourly) as table:
        assert table.identity.format == 2, "the first Roquets refuse it"
        commit_rows(table, {kind.queues[0]: 80}, kind.batch(range(80)))
        files = {(file.day, file.within): file.rows for file in table.files()}
        assert files == {
            ("2026-01-31", "hour=23"): 10,
            ("2026-02-01", "hour=0"): 60,
            ("2026-02-01", "hour=1"): 10,
        }
        assert all(Path(table.path(file)).exists() for file in table.files())
    with kind.open(wanted=msgspec.structs.replace(kind.wanted, columns=())) as table:
        assert table.identity.scheme == PartitionScheme(is_hourly=True), "the table remembers"
        assert {(file.day, file.within) for file in table.files()} == set(files)
    assert kind.on_disk() == kind.listed()


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"partition_by": "hour"}, "is partitioned by day, not by hour: leave --partition-by out"),
        ({"sort_by": ("body",)}, "is sorted by queue and offset, not by body: leave --sort-by out"),
        ({"body_format": "json"}, "was made without --body-format json: leave it out"),
    ],
)
def test_a_choice_of_before_is_not_changed(
    kind: TableKind, choice: dict[str, Any], says: str
) -> None:
    kind.open().close()
    with pytest.raises(ConfigError, match=says):
        kind.open(wanted=msgspec.structs.replace(kind.wanted, **choice))
    kind.open(wanted=msgspec.structs.replace(kind.wanted, partition_by="day")).close()


def test_days_that_are_removed_take_their_rows_and_no_offsets(kind: TableKind) -> None:
    with kind.open() as table:
        kind.archive(table, 0, 12)
        state, old = table.state(kind.queues), [f for f in table.files() if f.day < "2026-02-01"]
        commit = state.then(state.offsets, table.begin().name, (), old)
        assert commit.is_news
        table.commit(msgspec.structs.replace(commit, retired_before="2026-02-01"))
        assert table.state(kind.queues) == TableState(2, kind.offsets(12))
        kind.archive(table, 12, 14)
    assert {place for _, _, place in kind.places()} == {10, 11, 12, 13}
    snapshot = read_snapshot(str(kind.root), "orders")
    assert snapshot.begin is None, "an audit does not miss the days that were removed"
    assert snapshot.end == kind.offsets(14)


def test_days_that_were_removed_may_be_brought_back(kind: TableKind) -> None:
    with kind.open() as table:
        kind.archive(table, 0, 15)
        retire(table, "2026-02-01")
        kind.set_back(1)
        kind.archive(table, 15, 17)
    kind.open().close()
    assert kind.places() == kind.whole(17)


def test_body_columns_of_every_type_are_found_again(kind: TableKind) -> None:
    fields = tuple(BodyField(f"a_{name}", name) for name in FIELD_TYPES)
    with kind.open(wanted=msgspec.structs.replace(kind.wanted, body_format="json")) as table:
        table.add_body_fields(fields[:3])
        table.add_body_fields(fields)
        table.add_body_fields(())
        assert table.body_fields() == fields
        says = r"(lake of orders|roquet\.orders) has the column a_int int, which cannot become"
        with pytest.raises(ConfigError, match=says):
            table.add_body_fields([BodyField("a_int", "string")])


def test_a_table_without_body_columns_has_none(kind: TableKind) -> None:
    with kind.open() as table:
        assert table.body_fields() == ()


# -- the end of the world --------------------------------------------------------------------


def whole_life(kind: TableKind, disk: Disk | None) -> None:
    """Two batches and a merge, from wherever the table is."""
    with kind.open(disk) as table:
        for after in (4, 9):
            state = table.state(kind.queues)
            if state.number == 0 or state.offsets[kind.queues[0]] < after:
                kind.archive(table, 0 if after == 4 else 4, after)
        state = table.state(kind.queues)
        if state.number == 2:
            kind.merge(table, 9, table.files())


@pytest.mark.parametrize("stride", [SOME, EVERY])
@pytest.mark.parametrize("last_is_done", [False, True])
def test_whenever_the_world_ends_each_message_is_there_once(
    kind: TableKind, last_is_done: bool, stride: int | None
) -> None:
    root = kind.root
    for steps in range(1 + last_is_done, STEPS_MAX, stride or STRIDES[kind.name]):
        kind.root = root / str(steps)
        disk = kind.crashing_disk(steps, last_is_done=last_is_done)
        try:
            whole_life(kind, disk)
        except kind.crash:
            pass
        else:
            assert steps > 10
            return
        before = kind.state()
        assert kind.places() == kind.whole(max(before.offsets.values(), default=0)), steps
        whole_life(kind, None)
        assert kind.places() == kind.whole(9), steps
        assert kind.state() == TableState(3, kind.offsets(9)), steps
        # The merged files of the others are named by their older commits.
        assert len(kind.on_disk()) == 5, steps
    pytest.fail("it never comes to its end")


@pytest.mark.parametrize(
    ("body_format", "version"), [("", 1), ("json", 2), ("avro", 3), ("protobuf", 3)]
)
def test_a_table_has_the_lowest_format_that_says_all(body_format: str, version: int) -> None:
    source = BodySchema(format=body_format, text="") if version == 3 else None
    wanted = ArchiveIdentity(
        topic="orders", columns=(), body_format=body_format, body_source=source
    )
    assert tables.agree_identity(wanted, None, "here").format == version


def test_a_newer_format_is_not_touched() -> None:
    newer = ArchiveIdentity(topic="orders", columns=("broker",), format=tables.FORMAT + 1)
    with pytest.raises(ConfigError, match="newer Roquet"):
        tables.agree_identity(msgspec.structs.replace(newer, format=1), newer, "here")
