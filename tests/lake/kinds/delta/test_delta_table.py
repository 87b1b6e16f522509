"""Delta table: its log decides, and other writers may add entries."""

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Log
from deltalake import TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError
from tests.lake.conftest import START, TableKind, commit_rows, patch_first, raising
from tests.lake.kinds.delta.delta_log import (
    add_entry,
    allow_deletion_vectors,
    delete_rows,
    map_columns,
)

from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files.staging import Staging
from roquet.lake.kinds.delta import delta_table as tables
from roquet.lake.table import (
    ArchiveIdentity,
    ExpiredVersions,
    TableConflict,
    TableDamaged,
    TableState,
)
from roquet.model.errors import ConfigError, RoquetError
from roquet.net.clock import SYSTEM_CLOCK, SystemClock


def test_the_files_statistics_are_in_the_log(delta: TableKind) -> None:
    delta.fill(12)
    rows = pa.table(Log(str(delta.root)).get_add_actions(flatten=True)).to_pylist()
    statistics = {
        (row["min.queue_offset"], row["max.queue_offset"], row["num_records"]) for row in rows
    }
    assert statistics == {(0, 9, 10), (10, 11, 2)}
    assert {str(row["partition.day"]) for row in rows} == {"2026-01-31", "2026-02-01"}


KEYED = ("broker", "queue_id", "queue_offset", "key", "stored_at")


def keyed(offsets: range) -> pa.RecordBatch:
    rows = {
        "broker": ["broker-a"] * len(offsets),
        "queue_id": [0] * len(offsets),
        "queue_offset": list(offsets),
        "key": [f"key-{at:03}" for at in offsets],
        "stored_at": [START + timedelta(seconds=at) for at in offsets],
    }
    return pa.RecordBatch.from_pydict(rows, schema=schema_of(KEYED))


def test_statistics_of_the_files_prune_offsets_times_and_keys(delta: TableKind) -> None:
    """As deltalake's own reader does it: of three files it opens those that may have a row."""
    with delta.open(wanted=ArchiveIdentity(topic="orders", columns=KEYED)) as table:
        for at in range(3):
            commit_rows(table, delta.offsets(at), keyed(range(100 * at, 100 * at + 100)))
    rows = Log(str(delta.root)).to_pyarrow_dataset()
    moment = pc.scalar(pa.scalar(START + timedelta(seconds=250), pa.timestamp("us", "UTC")))
    for condition, count in (
        (pc.field("queue_offset") == 7, 1),
        (pc.field("queue_offset") >= 100, 2),
        (pc.field("key") == "key-150", 1),
        (pc.field("key") == "zzz", 0),
        (pc.field("stored_at") >= moment, 1),
    ):
        assert len(list(rows.get_fragments(filter=condition))) == count, condition


def test_offsets_outlive_the_entries_of_the_log(delta: TableKind) -> None:
    delta.fill(3)
    log = Log(str(delta.root))
    log.create_checkpoint()
    for entry in (delta.root / "_delta_log").glob("*.json"):
        entry.unlink()
    with delta.open() as table:
        assert table.state(delta.queues) == TableState(1, delta.offsets(3))


def test_entries_of_other_writers_do_not_disturb_the_archive(delta: TableKind) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        Log(str(delta.root)).optimize.compact()
        delta.archive(table, 3, 5)
        assert table.state(()) == TableState(2, delta.offsets(5)), (
            "queues are found by our own entries"
        )
    assert delta.places() == delta.whole(5)


def test_queues_are_found_behind_many_entries_of_other_writers(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them a queue whose broker is away would seem to be new when it is back."""
    monkeypatch.setattr(tables, "HISTORY_MAX", 2)
    delta.fill(3)
    for days in range(31, 35):
        kept = {"delta.logRetentionDuration": f"interval {days} days"}
        Log(str(delta.root)).alter.set_table_properties(kept)
    with delta.open() as table:
        assert table.state(()).offsets == delta.offsets(3)


def test_leftovers_that_cannot_be_removed_stop_no_archive(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delta.fill(3)
    refused = raising(RoquetError("no right to remove"))
    monkeypatch.setattr(Staging, "has_leftovers", refused)
    with delta.open() as table:
        delta.archive(table, 3, 5)
    assert delta.places() == delta.whole(5)
    assert "leftovers of killed runs stay: no right to remove" in caplog.text


def test_an_entry_that_another_writer_adds_first_is_read(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer adds an entry after the table was read and before ours is added."""

    def write_after_another(write: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        Log(str(delta.root)).alter.set_table_description(_description(delta.root))
        write(*args, **kwargs)

    patch_first(monkeypatch, Log, "create_write_transaction", write_after_another)
    delta.fill(3)
    assert delta.places() == delta.whole(3)


def test_a_writer_that_is_always_too_late_gives_up_and_leaves_no_file(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        Log(str(delta.root)).alter.set_table_description(_description(delta.root))
        raise CommitFailedError("another writer came first, in s3://lake/features/_delta_log")

    monkeypatch.setattr(tables, "TRIES", 3)
    monkeypatch.setattr(Log, "create_write_transaction", refuse)
    with delta.open() as table, pytest.raises(TableConflict, match="another archive writes to it"):
        delta.archive(table, 0, 3)
    assert delta.state() == TableState(0, {})
    assert delta.on_disk() == set()


def test_a_table_that_deltalake_cannot_write_any_more_is_a_sentence(delta: TableKind) -> None:
    """No other writer came first, so that trying again would be in vain."""
    with delta.open() as table:
        delta.archive(table, 0, 3)
        Log(str(delta.root)).alter.add_feature(
            TableFeatures.RowTracking, allow_protocol_versions_increase=True
        )
        with pytest.raises(ConfigError, match=r"written to any more: .*RowTracking.*Nothing was c"):
            delta.archive(table, 3, 5)
    assert delta.places() == delta.whole(3)


@pytest.mark.parametrize(
    "answer",
    ["an entry of this version exists", "Unsupported table features required: [RowTracking]"],
)
def test_a_commit_that_is_there_counts_whatever_its_answer_was(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """A request that is sent twice is refused the second time: by its own first one."""

    def write_twice(log: Log, *args: object, **kwargs: object) -> None:
        write(log, *args, **kwargs)
        raise CommitFailedError(answer)

    write: Callable[..., None] = Log.create_write_transaction
    monkeypatch.setattr(Log, "create_write_transaction", write_twice)
    with delta.open() as table:
        delta.archive(table, 0, 3)
        delta.archive(table, 3, 5)
        assert table.state(()) == TableState(2, delta.offsets(5))
    assert delta.places() == delta.whole(5)


def test_a_delta_table_that_is_no_archive_is_left_alone(tmp_path: Path, delta: TableKind) -> None:
    write_deltalake(str(delta.root), pa.table({"id": [1]}))
    with pytest.raises(ConfigError, match="is a Delta table, but not an archive"):
        delta.open()
    assert Log(str(delta.root)).version() == 0


def overwrite(delta: TableKind, columns: Sequence[str]) -> None:
    """Another writer gives the table these columns alone."""
    rows = delta.rows().select(list(columns))
    write_deltalake(
        str(delta.root), rows, mode="overwrite", schema_mode="overwrite", partition_by=["day"]
    )


def test_columns_that_another_writer_has_taken_are_a_sentence(delta: TableKind) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        overwrite(delta, ["topic", "broker", "queue_id", "queue_offset", "day"])
        with pytest.raises(ConfigError, match="has no column 'body' any more: another writer"):
            delta.archive(table, 3, 5)
    with pytest.raises(ConfigError, match="has no column 'body' any more: another writer"):
        delta.open()
    assert delta.places() == delta.whole(3)


def test_a_constraint_of_another_writer_is_not_broken(delta: TableKind) -> None:
    delta.open().close()
    Log(str(delta.root)).alter.add_constraint({"small": "queue_offset < 4"})
    with pytest.raises(ConfigError, match="has the constraint 'small', which the rows of messages"):
        delta.open()


def test_a_table_that_lets_offsets_expire_is_a_sentence(delta: TableKind) -> None:
    name = "delta.setTransactionRetentionDuration"
    delta.open().close()
    Log(str(delta.root)).alter.set_table_properties({name: "interval 7 days"})
    with pytest.raises(ConfigError, match=rf"lets offsets of archives expire \({name}\)"):
        delta.open()


def test_a_clone_without_the_offsets_of_its_files_is_not_filled_again(delta: TableKind) -> None:
    delta.fill(3)
    for entry in (delta.root / "_delta_log").glob("*.json"):
        lines = entry.read_text("utf-8").splitlines()
        entry.write_text("\n".join(line for line in lines if not line.startswith('{"txn":')))
    with pytest.raises(ConfigError, match="has files of an archive, and not the offsets at which"):
        delta.open()
    assert delta.places() == delta.whole(3)


def test_a_table_that_was_restored_is_not_written_on(delta: TableKind) -> None:
    """Its offsets are those of before: what lies between would be missing for ever."""
    with delta.open() as table:
        delta.archive(table, 0, 3)
        delta.archive(table, 3, 5)
        log = Log(str(delta.root))
        log.restore(1)
        with pytest.raises(ConfigError, match="restored to a version before 2"):
            delta.archive(table, 5, 9)
    with pytest.raises(
        ConfigError, match="restored to a version before 2, the first with all rows"
    ):
        delta.open()
    log.update_incremental()
    log.restore(2)
    with delta.open() as table:
        delta.archive(table, 5, 9)
    assert delta.places() == delta.whole(9)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_restore_right_after_a_commit_is_seen(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """Even when the answer to the commit was lost."""

    def add_and_restore(add: Callable[..., None], *arguments: Any, **options: Any) -> None:
        add(*arguments, **options)
        Log(str(delta.root)).restore(1)
        if is_lost:
            raise CommitFailedError("it is there already")

    with delta.open() as table:
        delta.archive(table, 0, 3)
        patch_first(monkeypatch, Log, "create_write_transaction", add_and_restore)
        delta.archive(table, 3, 5)
        with pytest.raises(ConfigError, match="restored to a version before 2"):
            delta.archive(table, 5, 9)


def test_a_time_after_the_last_commit_may_be_restored(delta: TableKind) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        log = Log(str(delta.root))
        time.sleep(0.05)
        at = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC)
        time.sleep(0.05)
        log.delete("queue_offset = 1")
        log.restore(at)
        delta.archive(table, 3, 5)
    assert delta.places() == delta.whole(5)


UNNAMED = {"txn": {"appId": "other", "version": 1}}
"""A change of an engine that says nothing about it: it has no `commitInfo`."""


def test_the_last_version_may_be_restored_behind_an_entry_that_says_nothing(
    delta: TableKind,
) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        delta.archive(table, 3, 5)
        add_entry(delta.root, UNNAMED)
        Log(str(delta.root)).restore(2)
    with delta.open() as table:
        delta.archive(table, 5, 9)
    assert delta.places() == delta.whole(9)


def test_restores_are_followed_across_an_entry_that_says_nothing(delta: TableKind) -> None:
    """Version 5 has the rows of version 3, which are those of version 1."""
    with delta.open() as table:
        delta.archive(table, 0, 3)
        delta.archive(table, 3, 5)
        Log(str(delta.root)).restore(1)
        add_entry(delta.root, UNNAMED)
        Log(str(delta.root)).restore(3)
        with pytest.raises(ConfigError, match="restored to a version before 2"):
            delta.archive(table, 5, 9)
    with pytest.raises(ConfigError, match="restored to a version before 2"):
        delta.open()


def test_queues_are_known_behind_a_long_log_of_others(delta: TableKind) -> None:
    """A queue whose broker is away, too."""
    delta.fill(3)
    for _ in range(tables.HISTORY_MAX + 10):
        add_entry(delta.root, UNNAMED)
    with delta.open() as table:
        assert table.state(()) == TableState(1, delta.offsets(3))


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_table_that_is_removed_under_its_archive_is_a_sentence(
    delta: TableKind, is_made_anew: bool
) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        shutil.rmtree(delta.root / "_delta_log")
        if is_made_anew:
            write_deltalake(str(delta.root), pa.table({"id": [1]}))
        with pytest.raises(TableDamaged, match="perhaps because the table was removed or made an"):
            delta.archive(table, 3, 5)


def test_a_table_in_the_place_of_another_is_not_written_to(
    delta: TableKind, tmp_path: Path
) -> None:
    """Another archive of the topic, with as many versions and more."""
    other = type(delta)("delta", tmp_path / "other")
    with other.open() as table:
        delta.archive(table, 0, 2)
        delta.archive(table, 2, 4)
    with delta.open() as table:
        delta.archive(table, 0, 3)
        shutil.rmtree(delta.root / "_delta_log")
        shutil.copytree(other.root / "_delta_log", delta.root / "_delta_log")
        before = TableState(1, delta.offsets(3))
        with pytest.raises(TableConflict, match="the table is at commit 2, not at 1"):
            table.commit(before.then(delta.offsets(5), table.begin().name, (), ()))


def test_a_vacuum_removes_what_a_checkpoint_has_forgotten(
    delta: TableKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was replaced ten days ago is in no checkpoint, and a vacuum does not see it."""
    now_ms, days = SYSTEM_CLOCK.now_ms(), 24 * 3_600_000
    with delta.open() as table:
        delta.archive(table, 0, 3)
        old = table.files()
        monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms - 10 * days)
        delta.merge(table, 3, old)
        monkeypatch.undo()
        Log(str(delta.root)).create_checkpoint()
        theirs = delta.root / "day=2026-01-31" / "part-0.parquet"
        theirs.write_bytes(b"of another writer")
        for path in delta.root.rglob("*.parquet"):
            os.utime(path, times=((now_ms - 11 * days) / 1000,) * 2)
        before = delta.on_disk()
        assert table.expire(now_ms - 7 * days, is_preview=True) == ExpiredVersions(files=2)
        assert delta.on_disk() == before
        assert table.expire(now_ms - 7 * days, is_preview=False) == ExpiredVersions(files=2)
        assert delta.on_disk() == before - {file.name for file in old}
        assert table.expire(now_ms - 7 * days, is_preview=False) == ExpiredVersions()
    assert theirs.exists()
    assert delta.places() == delta.whole(3)


def test_a_vacuum_leaves_the_files_of_an_archive_in_a_directory_below(
    delta: TableKind, tmp_path: Path
) -> None:
    """They are old, and the table above does not name them."""
    below = type(delta)("delta", delta.root / "below")
    with delta.open() as table, below.open() as nested:
        delta.archive(table, 0, 3)
        delta.archive(nested, 0, 12)
        now_ms = SYSTEM_CLOCK.now_ms()
        [old, *_] = below.root.rglob("*.parquet")
        orphan = delta.root / "day=2026-01-31" / f"roquet-{'0' * 32}.parquet"
        shutil.copy(old, orphan)
        for path in delta.root.rglob("*.parquet"):
            os.utime(path, times=(now_ms / 1000 - 3600,) * 2)
        before = delta.on_disk()
        assert table.expire(now_ms, is_preview=False) == ExpiredVersions(files=1)
        assert delta.on_disk() == before - {orphan.name}
    assert (delta.places(), below.places()) == (delta.whole(3), below.whole(12))


def test_what_a_writer_from_the_future_has_replaced_stays(
    delta: TableKind, caplog: pytest.LogCaptureFixture
) -> None:
    """A vacuum does not see what was removed after now, so that nothing names the file any more."""
    with delta.open() as table:
        delta.archive(table, 0, 3)
        state, [old, *_], attempt = table.state(delta.queues), table.files(), table.begin()
        merged = delta.written(attempt, delta.batch(range(3)))
        table.commit(state.then(state.offsets, attempt.name, merged, [old]))
    entry = delta.root / "_delta_log" / f"{2:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        for action, stamp in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
            if action in line:
                line[action][stamp] += 3_600_000
    entry.write_text("\n".join(map(json.dumps, lines)))
    for path in delta.root.rglob("*.parquet"):
        os.utime(path, times=(SYSTEM_CLOCK.now_ms() / 1000 - 3600,) * 2)
    before = delta.on_disk()
    with delta.open() as table:
        expired = table.expire(SYSTEM_CLOCK.now_ms(), is_preview=False)
    assert (expired, delta.on_disk()) == (ExpiredVersions(), before)
    assert "replaced long ago stay: the log of" in caplog.text
    assert "ahead of this machine's clock" in caplog.text


def test_rows_of_an_append_only_table_stay(delta: TableKind) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        Log(str(delta.root)).alter.set_table_properties({"delta.appendOnly": "true"})
        delta.archive(table, 3, 5)
        state = table.state(delta.queues)
        attempt = table.begin().name
        commit = state.then(state.offsets, attempt, (), tuple(table.files())[:1])
        with pytest.raises(ConfigError, match=r"is append-only .* nothing was committed"):
            table.commit(commit)
    assert delta.places() == delta.whole(5)


def test_rows_that_are_deleted_while_files_are_merged_stay_deleted(delta: TableKind) -> None:
    """The deletion vector is a part of the entry; the file that has it keeps its name."""
    with delta.open() as table:
        delta.archive(table, 0, 12)
        allow_deletion_vectors(delta.root)
        state, files = table.state(delta.queues), table.files()
        attempt = table.begin()
        merged = delta.written(attempt, delta.batch(range(12)))
        delete_rows(delta.root, files[0].path, 1, 2)
        with pytest.raises(ConfigError, match=r"has deletion vectors, .*REORG TABLE"):
            table.commit(state.then(state.offsets, attempt.name, merged, files))
        assert table.state(delta.queues) == state
    with pytest.raises(ConfigError, match="has deletion vectors"):
        delta.open()


def test_column_mapping_that_is_turned_on_under_an_archive_is_a_sentence(delta: TableKind) -> None:
    with delta.open() as table:
        delta.archive(table, 0, 3)
        map_columns(delta.root)
        with pytest.raises(ConfigError, match="maps its columns to other names in its files"):
            delta.archive(table, 3, 5)
    assert Log(str(delta.root)).version() == 2, "nothing was committed"


def _description(root: Path) -> str:
    return Log(str(root)).metadata().description or ""
