"""Data directories of Apache RocketMQ 4.9.7 and 5.5.0, and directories that cannot be used."""

import gzip
import hashlib
import json
import logging
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import DataDir, draft, fill, index_all, read_bodies
from tests.unpacking import unpack

from roquet.model.errors import StoreError
from roquet.store.check import StoreReport, check
from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.wire.records.record import decode, decode_properties

VECTORS = Path(__file__).parents[2] / "vectors" / "store"
KINDS = [
    f"{version}-{kind}" for version in ("4.9.7", "5.5.0") for kind in ("clean", "killed", "torn")
]
GENUINE = StoreConfig(
    log_file_size=1 << 20, queue_file_entries=300, index_slots=500, index_entries=2000
)
NOW = 1_795_250_000_000

Genuine = tuple[Store, dict[str, list[tuple[dict[str, Any], Any]]], str, StoreReport]
"""The store, its expected cases by kind, its name, and the check before it was opened."""


def expected(kind: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    path = VECTORS / f"{kind}.expected.jsonl"
    with path.open() if path.exists() else gzip.open(f"{path}.gz", "rt") as lines:
        for line in lines:
            case = json.loads(line)
            yield case["in"].pop("what"), case["in"], case["out"]


@pytest.fixture(scope="module", params=KINDS)
def genuine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Genuine]:
    """A captured directory, unpacked and opened by us."""
    directory = tmp_path_factory.mktemp(request.param)
    with tarfile.open(VECTORS / f"{request.param}.tar.xz") as archive:
        wanted = [
            m for m in archive.getmembers()
            if not any(name in m.name for name in ("timerlog", "timerwheel", "rocksdbstore"))
        ]  # fmt: skip
        unpack(archive, directory, wanted)
    before = check(directory, GENUINE)
    store = Store.open(directory, GENUINE, now_ms=NOW, pid=1)
    cases: dict[str, list[tuple[dict[str, Any], Any]]] = {}
    for what, given, out in expected(request.param):
        cases.setdefault(what, []).append((given, out))
    yield store, cases, request.param, before
    store.close(NOW)
    assert check(directory, GENUINE).verdict == "whole"


def test_log_and_queues_have_apaches_bounds(genuine: Genuine) -> None:
    store, cases, kind, _ = genuine
    ((_, log),) = cases["log"]
    assert store.begin_position == log["min_physical_offset"]
    assert store.end_position == log["max_physical_offset"]
    for given, out in cases["queue"]:
        found = store.bounds(given["topic"], given["queue_id"])
        assert found == (out["min_offset"], out["max_offset"]), (kind, given)


def test_every_apache_message_reads_back(genuine: Genuine) -> None:
    store, cases, kind, _ = genuine
    for given, out in cases["message"]:
        place = (given["topic"], given["queue_id"], given["queue_offset"])
        found = store.read(*place, count_max=1, wanted={out["tags_code"]}.__contains__)
        assert found.count == 1, (kind, given)
        message = decode(bytes(found.parts[0]))
        assert {
            "physical_offset": message.position,
            "size": message.size,
            "stored_topic": message.topic,
            "stored_queue_id": message.queue_id,
            "stored_queue_offset": message.queue_offset,
            "sys_flag": message.sys_flag,
            "flag": message.flag,
            "born_timestamp": message.born_ms,
            "store_timestamp": message.stored_ms,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_position,
            "body_crc": message.crc,
            "properties": decode_properties(message.properties),
        }.items() <= out.items(), (kind, given)
        if not message.sys_flag & 1:  # the expected body is the decompressed one
            assert hashlib.sha1(message.body).hexdigest() == out["body_sha1"]


def test_offsets_by_time_are_those_of_5_5(genuine: Genuine) -> None:
    """4.9.7 gives the nearest message, 5.5.0 the first at that time or later: so do we."""
    store, cases, kind, _ = genuine
    for given, out in cases["offset_by_time"]:
        found = store.offset_by_time(given["topic"], given["queue_id"], given["timestamp"])
        if kind.startswith("5.5"):
            assert found == out, (kind, given)
        least, end = store.bounds(given["topic"], given["queue_id"])
        times = [
            store.store_time_at(given["topic"], given["queue_id"], offset)
            for offset in range(least, end)
        ]
        assert found == least + sum(ms < given["timestamp"] for ms in times), (kind, given)


def test_messages_are_found_by_key(genuine: Genuine) -> None:
    """After a crash 4.9.7 lacks messages that it had; we find those and the rest."""
    store, cases, kind, _ = genuine
    index_all(store)
    for given, out in cases["index"]:
        found = store.query(given["topic"], given["key"], count_max=given["max"])
        assert [decode(record).position for record in found.records] == found.positions
        if kind in ("4.9.7-killed", "4.9.7-torn"):
            assert set(out) <= set(found.positions), (kind, given)
        else:
            assert found.positions == out, (kind, given)


def test_the_check_says_beforehand_what_opening_will_mend(genuine: Genuine) -> None:
    _, _, kind, before = genuine
    assert before.verdict == ("whole" if kind.endswith("clean") else "recoverable")
    assert any("unfinished write" in line for line in before.pending) == kind.endswith("torn")


def test_sizes_are_taken_from_the_files_of_an_apache_directory(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 120)
    store.close(NOW)
    store_dir.files.remove(store_dir.path("checkpoint"))
    store_dir.config = StoreConfig(
        index_slots=20, index_entries=100, log_step=4096, queue_step=400, index_step=400
    )
    with caplog.at_level(logging.INFO):
        store = store_dir.open()
    assert store.bounds("T", 0) == (0, 120)
    assert "keeps its files of 8192 bytes" in caplog.text


@pytest.mark.parametrize("name", ["commitlog/00000000000000008192", "consumequeue/T/0/" + "0" * 20])
def test_a_file_of_odd_size_is_named_and_nothing_changes(
    store_dir: DataDir, store: Store, name: str
) -> None:
    fill(store, 120)
    store.close(NOW)
    if "queue" in name:  # without a checkpoint the configured size may be the wrong one
        store_dir.files.remove(store_dir.path("checkpoint"))
    path = store_dir.path(name)
    store_dir.files.contents[path] = bytes(store_dir.files.contents[path])[:500]
    before = store_dir.snapshot()
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{path} has 500 bytes instead of .*: restore"):
            store_dir.open()
    assert store_dir.snapshot() == before


@pytest.mark.parametrize("size", [0, 77, 3000])
def test_an_index_file_of_odd_size_is_made_again(
    store_dir: DataDir, store: Store, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 150)
    store.close(NOW)
    path = min(p for p in store_dir.files.contents if p.parent.name == "index")
    store_dir.files.contents[path] = bytes(size)
    store = store_dir.open()
    assert len(store.query("T", "U1", count_max=999).positions) == 150
    assert f"{path} has {size} bytes instead of" in caplog.text


def test_a_missing_file_in_the_middle_is_named(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    store.close(NOW)
    store_dir.files.remove(store_dir.path("commitlog/00000000000000008192"))
    with pytest.raises(StoreError, match="0000008192 is missing between"):
        store_dir.open()


def test_a_missing_last_file_is_noticed(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    store.close(NOW)
    for start in (16384, 24576):
        store_dir.files.remove(store_dir.path(f"commitlog/{start:020d}"))
    for _ in range(2):  # with our note, and by the queues alone
        with pytest.raises(StoreError, match="kept up to 25854: restore the files"):
            store_dir.open()
        store_dir.files.remove(store_dir.path("checkpoint"))
    store_dir.files.replace(store_dir.path("abort"), b"")
    store = store_dir.open()
    assert 16384 - 300 < store.end_position <= 16384
    assert store.bounds("T", 0) == (0, 76)
    assert store.append(draft(b"next"), NOW).queue_offset == 76


def test_foreign_files_are_left_alone_with_a_warning(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 3)
    store.close(NOW)
    names = ["commitlog/notes.txt", "index/x", "consumequeue/T/zero/x", "consumequeue/T/0/y"]
    for name in names:
        store_dir.files.replace(store_dir.path(name), b"mine")
    store = store_dir.open()
    assert store.bounds("T", 0) == (0, 3)
    for name in ("notes.txt", "index/x", "T/zero", "T/0/y"):
        assert f"{name} does not belong there" in caplog.text
    assert all(store_dir.path(name) in store_dir.files.contents for name in names)


def test_a_last_file_that_was_made_and_never_filled_is_no_problem(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 3)
    store.close(NOW)
    store_dir.files.contents[store_dir.path("commitlog/00000000000000008192")] = b""
    assert store_dir.open().bounds("T", 0) == (0, 3)


def test_a_clean_apache_log_with_preallocated_files_opens(store_dir: DataDir, store: Store) -> None:
    fill(store, 3)
    end = store.end_position
    store.close(NOW)
    store_dir.files.remove(store_dir.path("checkpoint"))
    store_dir.files.create(store_dir.path("commitlog/00000000000000008192"), 8192)
    store = store_dir.open()
    assert store.end_position == end
    fill(store, 120)
    assert store.bounds("T", 0) == (0, 123)


def test_a_path_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open(tmp_path / "data", now_ms=NOW)


def test_a_real_directory_survives_being_copied_while_open(tmp_path: Path) -> None:
    config = StoreConfig(
        log_file_size=1 << 16, queue_file_entries=100, index_slots=9, index_entries=99
    )
    store = Store.open(tmp_path / "a", config, now_ms=NOW, pid=4)
    fill(store, 300, size=500)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    twin = Store.open(tmp_path / "b", config, now_ms=NOW, pid=5)
    assert read_bodies(twin) == read_bodies(store)
    assert (tmp_path / "b" / "abort").read_text() == "5"
    twin.close(NOW)
    store.close(NOW)
    assert not (tmp_path / "a" / "abort").exists()
    assert check(tmp_path / "b", config).verdict == "whole"


def test_two_thousand_queues_need_few_maps() -> None:
    config = StoreConfig(
        log_file_size=1 << 20, queue_file_entries=50, index_slots=9, index_entries=99,
        queue_step=1000, maps_max=100,
    )  # fmt: skip
    files = MemoryFiles()
    store = Store.open(Path("/data"), config, files=files, now_ms=NOW)
    names = [(f"T{n % 40}", n // 40) for n in range(2000)]
    for topic, queue_id in names * 2:
        store.append(draft(b"m", topic, queue_id), NOW)
    assert store.mapped_count <= 100
    assert all(store.bounds(*name) == (0, 2) for name in names)
    store.close(NOW)
    store = Store.open(Path("/data"), config, files=files, now_ms=NOW)
    assert sum(len(store.queue_ids(topic)) for topic in store.topics()) == 2000
    assert all(store.bounds(*name) == (0, 2) for name in names[::10])
    assert store.mapped_count <= 100


def test_a_checkpoint_that_cannot_be_read_is_named(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store_dir.files, "read", refuse)
    with pytest.raises(
        StoreError, match="checkpoint cannot be used: Permission denied; let the user"
    ):
        store_dir.open()


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_start_on_a_disk_that_fails_says_why(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch, *, was_killed: bool
) -> None:
    fill(store, 2)
    if not was_killed:
        store.close(0)
    store_dir.files = store_dir.files.copy()

    def broken(_path: Path, _view: memoryview | None = None) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(store_dir.files, "sync", broken)
        if was_killed:
            with pytest.raises(StoreError, match="/data cannot be used: Input/output error"):
                store_dir.open()
        else:
            store_dir.open()
    assert store_dir.open_after_kill().bounds("T", 0) == (0, 2)


def test_a_store_whose_last_name_is_not_durable_is_closed_all_the_same(
    store_dir: DataDir,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(store, 2)
    store.flush_all(0)
    remove = store_dir.files.remove

    def failing(path: Path) -> None:
        remove(path)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store_dir.files, "remove", failing)
    store.close(0)
    assert "may look as if it was not closed" in caplog.text


@pytest.mark.parametrize("text", [b"2", b"10\n", b"", b"one", b"\xff"])
def test_a_directory_of_a_later_format_is_refused_and_left_alone(
    store_dir: DataDir, store: Store, text: bytes
) -> None:
    fill(store, 3)
    store.close(NOW)
    path = store_dir.path("store-format")
    store_dir.files.replace(path, text)
    before = store_dir.snapshot()
    with pytest.raises(StoreError, match="reads up to 1: start the version that wrote it"):
        store_dir.open()
    with pytest.raises(StoreError, match="reads up to 1"):
        check(store_dir.directory, store_dir.config, files=store_dir.files)
    assert store_dir.snapshot() == before
    store_dir.files.replace(path, b"1\n")
    store_dir.open().close(NOW)


def test_an_unreadable_format_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store-format").mkdir()
    with pytest.raises(StoreError, match="store-format cannot be used"):
        Store.open(tmp_path, now_ms=NOW, pid=1)
