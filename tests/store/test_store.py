"""The store as a whole: it keeps messages, whatever happens to the process or the power."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft, fill, index_all, parts, read_bodies

from roquet.model.errors import StoreError, StoreFailed, StoreFull, StoreLocked
from roquet.rules.retention import DiskUsage, required_free_bytes
from roquet.store.check import check
from roquet.store.filesystem.files import FileWriter
from roquet.store.reading import reader
from roquet.store.store import Store
from roquet.wire.records.record import decode

pytestmark = pytest.mark.usefixtures("form")


Model = dict[tuple[str, int], list[tuple[int, bytes]]]
"""Sent messages: where each one ends in the log, and its body."""


def test_appended_messages_are_read_back_with_their_offsets(
    store_dir: DataDir, store: Store
) -> None:
    sent = [f"m{n}".encode() for n in range(300)]
    appended = [store.append(draft(body), NOW) for body in sent]
    assert [a.queue_offset for a in appended] == list(range(300))
    assert store.bounds("T", 0) == (0, 300)
    assert read_bodies(store) == sent
    assert store.end_position > 3 * store_dir.config.log_file_size


def test_an_append_is_told_of_while_somebody_listens(store: Store) -> None:
    ends: list[int] = []
    store.on_append(lambda: ends.append(store.end_position))
    first = store.append(draft(), NOW)
    batch = store.append_batch(draft(), parts([(0, b"a", b"", 0), (0, b"b", b"", 0)]), NOW)
    assert ends == [first.position + first.size, batch.end]
    store.on_append(None)
    store.append(draft(), NOW)
    assert len(ends) == 2


def test_a_log_that_is_another_ones_takes_no_message(store: Store) -> None:
    ends: list[int] = []
    store.refuse_appends("this log is a copy")
    store.on_append(lambda: ends.append(store.end_position))
    for append in (
        lambda: store.append(draft(), NOW),
        lambda: store.append_batch(draft(), parts([(0, b"a", b"", 0)]), NOW),
    ):
        with pytest.raises(StoreError, match="this log is a copy"):
            append()
    assert (store.end_position, store.refusal, ends) == (0, None, [])
    store.refuse_appends(None)
    store.append(draft(), NOW)
    assert ends == [store.end_position]


def test_a_store_that_was_closed_opens_as_it_was(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    before, end = read_bodies(store), store.end_position
    store.close(NOW)
    store = store_dir.open()
    assert (read_bodies(store), store.end_position, store.flushed_position) == (before, end, end)
    assert store.topics() == ["T"]
    assert store.queue_ids("T") == [0]


def test_a_killed_process_loses_nothing(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    before = read_bodies(store)
    assert read_bodies(store_dir.open_after_kill()) == before


def test_recovering_twice_gives_the_same_as_once(store_dir: DataDir) -> None:
    fill(store_dir.open(), 120)
    store_dir.open_after_kill()
    once = store_dir.snapshot()
    store_dir.open_after_kill()
    assert store_dir.snapshot() == once


@pytest.mark.parametrize("has_entry", [True, False])
def test_a_tail_torn_at_any_byte_loses_the_last_message_alone(
    store_dir: DataDir, store: Store, has_entry: bool
) -> None:
    for n in range(3):
        store.append(draft(b"%d" % n, topic=f"T{n % 2}"), NOW)
    store.flush_all(NOW)
    store.append(draft(b"kept"), NOW)
    last = store.append(draft(b"last", queue_id=1), NOW)
    if not has_entry:
        store_dir.content(f"consumequeue/T/1/{0:020d}")[:20] = bytes(20)
    whole = store_dir.files
    for cut in range(last.size):
        store_dir.files = whole
        torn = _open_torn(store_dir, last.position + cut, last.size - cut)
        if torn is not None:
            store = torn
            assert store.end_position == last.position, f"cut at byte {cut}"
            assert store.bounds("T", 1) == (0, 0)
            assert store.append(draft(b"next", queue_id=1), NOW).queue_offset == 0
            assert read_bodies(store) == [b"kept"]


def _open_torn(store_dir: DataDir, position: int, size: int) -> Store | None:
    """The store opened after a tear; None when the tear has changed nothing."""
    store_dir.files = store_dir.files.copy()
    piece = store_dir.bytes_at(position, size)
    if not any(piece):
        return None
    piece[:] = bytes(size)
    return store_dir.open()


def test_old_bytes_after_a_torn_tail_never_return(store_dir: DataDir, store: Store) -> None:
    store.flush_all(NOW)
    appended = fill(store, 5)
    store_dir.bytes_at(appended[1].position, 4)[:] = bytes(4)
    store = store_dir.open_after_kill()
    assert store.end_position == appended[1].position
    # A record of the same size would let the old one behind it seem to follow.
    fill(store, 1, properties={"TAGS": "red", "UNIQ_KEY": "U1"})
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == (0, 2)
    assert len(read_bodies(store)) == 2


def test_records_after_damage_in_the_middle_are_kept(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    appended = fill(store, 120)
    before = read_bodies(store)
    store.flush_all(NOW)
    store_dir.bytes_at(appended[60].position, 30)[:] = bytes(30)
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == (0, 120)
    assert read_bodies(store) == before[:60] + before[61:]
    assert "offsets 60 to 60" in caplog.text
    assert [(d.start, d.stop) for d in store.damage] == [
        (appended[60].position, appended[60].position + appended[60].size)
    ]


def test_a_scrub_finds_damage_before_a_reader(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    appended = fill(store, 120)
    before = read_bodies(store)
    store.close(NOW)
    # The head stays whole: only the checksum tells.
    store_dir.bytes_at(appended[7].position + 95, 4)[:] = b"ruin"
    store = store_dir.open()
    while store.scrub(1000):
        pass
    assert [lost.first for d in store.damage for lost in d.lost] == [7]
    assert read_bodies(store) == before[:7] + before[8:]
    assert store.message_at(appended[7].position) is None
    assert store.message_at(appended[8].position) is not None


def test_damage_after_the_checkpoint_is_found_by_the_next_recovery(
    store_dir: DataDir, store: Store
) -> None:
    appended = fill(store, 20)
    store.flush_all(NOW)
    more = fill(store, 3)
    store_dir.bytes_at(appended[-1].position, 8)[:] = b"\xff" * 8
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == (0, 23)
    assert len(read_bodies(store)) == 22
    assert store.end_position == more[-1].position + more[-1].size
    assert [lost.first for d in store.damage for lost in d.lost] == [19]


def test_queues_are_made_again_when_their_files_are_gone(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    before = read_bodies(store)
    store.close(NOW)
    store_dir.files.remove(store_dir.path("consumequeue"))
    store = store_dir.open()
    assert read_bodies(store) == before


def test_a_single_queue_is_made_again_after_a_crash(store_dir: DataDir, store: Store) -> None:
    fill(store, 30)
    fill(store, 30, topic="U")
    before = read_bodies(store)
    store.flush_all(NOW)
    fill(store, 3)
    store_dir.files.remove(store_dir.path("consumequeue/T"))
    store = store_dir.open_after_kill()
    assert read_bodies(store) == [*before, *read_bodies(store)[-3:]]
    assert store.bounds("U", 0) == (0, 30)


def test_messages_are_found_by_key_and_by_unique_key(store: Store) -> None:
    places = [
        store.append(draft(b"%d" % n, properties={"KEYS": f"a b{n}", "UNIQ_KEY": f"U{n}"}), NOW + n)
        for n in range(40)
    ]
    while store.dispatch(7):
        pass
    assert store.query("T", "a").positions == [p.position for p in places[-32:]]
    assert [decode(r).body for r in store.query("T", "U5").records] == [b"5"]
    assert [decode(r).body for r in store.query("T", "b6").records] == [b"6"]
    assert store.query("U", "a").records == []
    size = len(store.query("T", "a", count_max=1).records[0])
    assert len(store.query("T", "a", bytes_max=size).records) == 1
    assert len(store.query("T", "a", bytes_max=size + 1).records) == 2
    newest = store.query("T", "a", before=places[9].position, count_max=3)
    assert newest.positions == [p.position for p in places[6:9]]
    assert store.query("T", "a", begin_ms=NOW + 38).positions == [p.position for p in places[38:]]
    assert store.query("T", "a", end_ms=NOW + 1, count_max=9).positions == [
        p.position for p in places[:2]
    ]
    assert store.indexed_position == store.end_position


def test_the_index_is_whole_again_after_a_kill(store_dir: DataDir, store: Store) -> None:
    fill(store, 30)
    store.dispatch(10)
    store.flush_all(NOW)
    store.dispatch(10)
    store = store_dir.open_after_kill()
    assert len(store.query("T", "U1", count_max=100).positions) == 30
    store.close(NOW)
    assert check(store_dir.directory, store_dir.config, files=store_dir.files).verdict == "whole"


def test_a_query_examines_the_newest_of_very_many_messages_with_one_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = fill(store, 30)
    index_all(store)
    monkeypatch.setattr(reader, "QUERY_MAX", 10)
    assert store.query("T", "U1", count_max=99).positions == [p.position for p in places[20:]]
    assert store.query("T", "U1", count_max=99, end_ms=NOW + 19).positions == []


def test_an_index_that_was_deleted_is_made_again(store_dir: DataDir, store: Store) -> None:
    fill(store, 30)
    store.close(NOW)
    store_dir.files.remove(store_dir.path("index"))
    store = store_dir.open()
    assert len(store.query("T", "U1", count_max=100).positions) == 30


def test_a_full_disk_is_an_error_and_stores_nothing(store_dir: DataDir, store: Store) -> None:
    fill(store, 3)
    store_dir.files.capacity = sum(store_dir.files.blocks.values())
    end = store.end_position
    refused = 0
    while not refused:
        end = store.end_position
        try:
            store.append(draft(b"x" * 500), NOW)
        except StoreFull:
            refused += 1
    count, before = store.bounds("T", 0)[1], read_bodies(store)
    assert store.end_position == end
    with pytest.raises(StoreFull):
        store.append_batch(draft(), parts([(0, b"y" * 2000, b"", 0)] * 3), NOW)
    assert store.bounds("T", 0) == (0, count)
    assert read_bodies(store) == before
    store_dir.files.capacity *= 2
    assert store.append(draft(b"again"), NOW).queue_offset == count


def test_writes_are_refused_before_the_disk_is_full_and_reads_go_on(store: Store) -> None:
    store.append(draft(b"one"), NOW)
    assert store.watch_disk(DiskUsage(100, 9))
    with pytest.raises(StoreFull, match="9 bytes of 100 bytes free, and 10 bytes are wanted"):
        store.append(draft(), NOW)
    assert isinstance(store.refusal, StoreFull)
    assert read_bodies(store) == [b"one"]
    assert not store.watch_disk(DiskUsage(100, 50))
    assert store.refusal is None
    assert store.append(draft(), NOW).queue_offset == 1


def test_a_failure_that_meets_a_full_disk_is_not_over_when_there_is_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_meanwhile(*facts: Any) -> int:
        store.fail("a flush in another thread failed")
        return required_free_bytes(*facts)

    monkeypatch.setattr("roquet.store.store.required_free_bytes", fail_meanwhile)
    assert store.watch_disk(DiskUsage(100, 9))
    assert isinstance(store.refusal, StoreFailed)
    assert not store.watch_disk(DiskUsage(100, 50))
    with pytest.raises(StoreFailed, match="a flush in another thread failed"):
        store.append(draft(), NOW)


def test_a_disk_that_does_not_keep_its_word_ends_writing(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(draft(), NOW)

    def fail(path: Path, view: memoryview | None = None) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store_dir.files, "sync", fail)
    with pytest.raises(StoreError, match="could not be made durable"):
        store.flush_log()
    part = (0, b"body", b"", 0)
    for refused in (
        lambda: store.append(draft(), NOW),
        lambda: store.append_batch(draft(), parts([part]), NOW),
    ):
        with pytest.raises(StoreError, match="could not be made durable"):
            refused()
    assert store.flushed_position == 0
    with pytest.raises(StoreError):
        store.flush_all(NOW)
    store.close(NOW)
    assert store_dir.path("abort") in store_dir.files.contents


def test_once_the_disk_has_failed_reads_go_on_and_nothing_is_deleted(store: Store) -> None:
    fill(store, 200)
    store.fail("a disk")
    assert store.expire(NOW + 100 * 24 * 3_600_000, at_once=True) == []
    assert len(read_bodies(store)) == 200


def removed(store_dir: DataDir) -> set[str]:
    """The numbers below which files of deleted topics wait to be deleted."""
    return set(store_dir.files.list(store_dir.path("consumequeue-removed")))


def test_queues_of_a_deleted_topic_are_out_of_the_way_before_their_files_are_deleted(
    store_dir: DataDir, store: Store
) -> None:
    for _ in range(2):
        fill(store, 3)
        store.delete_topic("T")
    assert (removed(store_dir), store.bounds("T", 0)) == ({"1", "2"}, (0, 0))
    fill(store, 1)
    store_dir.files.remove(store_dir.path("consumequeue-removed/1"))
    store.delete_topic("T")
    assert removed(store_dir) == {"2", "3"}
    fill(store, 1)
    store.clear_removed()
    assert (removed(store_dir), len(read_bodies(store))) == (set(), 1)
    store.delete_topic("T")
    fill(store, 2)
    store = store_dir.open_after_kill()
    assert (removed(store_dir), len(read_bodies(store))) == (set(), 2)


def test_remaining_files_of_a_deleted_topic_are_logged_and_do_not_prevent_opening(
    store_dir: DataDir,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(store, 3)
    store.delete_topic("T")
    store.close(NOW)

    def failing(path: Path) -> None:
        if "consumequeue-removed" in path.parts:
            raise StoreError("not yours")
        store_dir.files.contents.pop(path, None)

    monkeypatch.setattr(store_dir.files, "remove", failing)
    store = store_dir.open()
    assert "files of deleted topics are left: not yours" in caplog.text
    fill(store, 1)
    store.delete_topic("T")
    assert removed(store_dir) == {"1", "2"}


def test_an_index_that_cannot_be_written_does_not_keep_the_store_from_closing(
    store_dir: DataDir,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(store, 3)
    create = store_dir.files.create

    def failing(path: Path, size: int) -> None:
        if "index" in path.parts:
            raise StoreError("no")
        create(path, size)

    monkeypatch.setattr(store_dir.files, "create", failing)
    store.close(NOW)
    assert "the key index goes on after the next start" in caplog.text
    assert store_dir.path("abort") not in store_dir.files.contents
    monkeypatch.undo()
    assert store_dir.open().query("T", "U1").records


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_unsynced_writes_of_a_killed_process_are_made_durable_by_the_next(
    store_dir: DataDir, store: Store, *, is_checkpointed: bool
) -> None:
    fill(store, 3)
    if is_checkpointed:
        store.flush_all(NOW)
    fill(store, 60)  # two files of the queue, of the log
    fill(store, 3, topic="U")
    store_dir.files.durable = {
        p: d for p, d in store_dir.files.durable.items() if p.name == "checkpoint"
    }
    if is_checkpointed:
        store_dir.files.durable |= store_dir.files.copy().durable
    store = store_dir.open_after_kill()
    fill(store, 1)
    store.flush_all(NOW)
    store_dir.files = store_dir.files.after_power_loss(Random(3))
    store = store_dir.open()
    assert (len(read_bodies(store)), len(read_bodies(store, "U"))) == (64, 3)


def test_a_closed_store_refuses_and_closing_again_does_nothing(store: Store) -> None:
    store.close(NOW)
    store.close(NOW)
    with pytest.raises(StoreError, match="is closed"):
        store.append(draft(), NOW)


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_closed_store_has_no_file_of_its_log_open(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch, has_failed: bool
) -> None:  # fmt: skip
    open_writer, unclosed = store_dir.files.open_writer, list[str]()

    def counted(path: Path) -> FileWriter:
        writer = open_writer(path)
        unclosed.append(path.name)
        monkeypatch.setattr(writer, "close", lambda: unclosed.remove(path.name))
        return writer

    monkeypatch.setattr(store_dir.files, "open_writer", counted)
    store = store_dir.open()
    for _ in range(4):
        store.append(draft(bytes(3000)), NOW)
    assert unclosed == [f"{8192:020d}"]
    if has_failed:
        store.fail("the disk is gone")
    store.close(NOW)
    assert unclosed == []


def test_a_directory_is_held_by_one_store(store_dir: DataDir, store: Store) -> None:
    with pytest.raises(StoreLocked, match="process 7"):
        store_dir.open()
    store.close(NOW)
    store_dir.open()


def test_a_store_without_a_directory_is_in_memory() -> None:
    store = Store.open(None, now_ms=NOW)
    store.append(draft(b"here"), NOW)
    store.flush_all(NOW)
    assert read_bodies(store) == [b"here"]
    store.close(NOW)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), maps_max=st.sampled_from((2, 12)))
@example(seed=14610765, maps_max=2)  # the first record is lost, and with it all files of the log
def test_power_loss_takes_nothing_that_was_flushed(seed: int, maps_max: int) -> None:
    """Sectors survive at random; what `flushed_position` covers is there, in order, dense."""
    store_dir, random = DataDir(), Random(seed)
    store_dir.config = msgspec.structs.replace(store_dir.config, maps_max=maps_max)
    store = store_dir.open()
    model: Model = {}
    for _ in range(3):
        flushed = _write_at_random(store, model, random)
        store_dir.files = store_dir.files.after_power_loss(random)
        store = store_dir.open()
        for (topic, queue_id), sent in model.items():
            kept = read_bodies(store, topic, queue_id)
            due = sum(stop <= flushed for stop, _ in sent)
            assert kept == [body for _, body in sent[: len(kept)]], f"seed {seed}"
            assert len(kept) >= due, f"seed {seed}"
            del sent[len(kept) :]
        assert store.damage == []
    store.close(NOW)
    report = check(store_dir.directory, store_dir.config, files=store_dir.files)
    assert (report.verdict, report.problems) == ("whole", ()), f"seed {seed}"


def _write_at_random(store: Store, model: Model, random: Random) -> int:
    flushed = store.flushed_position
    for n in range(random.randrange(40)):
        topic, queue_id = random.choice("TUV"), random.randrange(2)
        body = random.randbytes(random.randrange(900))
        message = draft(body, topic, queue_id, properties={"KEYS": f"k{n}", "TAGS": "t"})
        appended = store.append(message, NOW + n)
        stop = appended.position + appended.size
        model.setdefault((topic, queue_id), []).append((stop, body))
        dice = random.randrange(12)
        if dice == 0:
            flushed = store.flush_log()
        elif dice == 1:
            store.flush_all(NOW)
            flushed = store.flushed_position
        elif dice == 2:
            store.dispatch(20)
    return flushed


class StoreAndModel:
    """A store and its model, a dictionary of lists; every operation is done to both."""

    def __init__(self, store_dir: DataDir) -> None:
        self.store_dir, self.draft = store_dir, draft
        self.store = store_dir.open()
        self.model: dict[tuple[str, int], list[bytes]] = {}

    def append(self, topic: str, queue_id: int, body: bytes) -> None:
        sent = self.model.setdefault((topic, queue_id), [])
        appended = self.store.append(self.draft(body, topic, queue_id), NOW)
        assert appended.queue_offset == len(sent)
        sent.append(body)

    def append_batch(self, topic: str, batch: list[bytes]) -> None:
        sent = self.model.setdefault((topic, 0), [])
        shared = self.draft(b"", topic)
        rows = [(0, body, shared.properties, 0) for body in batch]
        found = self.store.append_batch(shared, parts(rows), NOW)
        assert (found.queue_offset, len(found.positions)) == (len(sent), len(batch))
        sent += batch

    def flush(self) -> None:
        self.store.flush_all(NOW)

    def index(self) -> None:
        self.store.dispatch(10)

    def restart(self) -> None:
        self.store.close(NOW)
        self.store = self.store_dir.open()

    def kill(self) -> None:
        self.store = self.store_dir.open_after_kill()

    def find(self) -> None:
        while self.store.dispatch():
            pass
        found = self.store.query("T", "U1", count_max=10_000).positions
        assert len(found) == sum(len(m) for (t, _), m in self.model.items() if t == "T")


TOPICS, BODIES = st.sampled_from("TU"), st.binary(max_size=20).map(lambda b: b * (len(b) * 5))
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), TOPICS, st.integers(0, 1), BODIES),
        st.tuples(st.just("append_batch"), TOPICS, st.lists(BODIES, max_size=3)),
        st.tuples(st.sampled_from(["flush", "index", "restart", "kill", "find"])),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS, maps_max=st.sampled_from((2, 12)))
def test_a_store_is_a_dictionary_of_lists_through_kills_and_restarts(
    operations: list[tuple[Any, ...]], maps_max: int
) -> None:
    store_dir = DataDir()
    store_dir.config = msgspec.structs.replace(store_dir.config, maps_max=maps_max)
    pair = StoreAndModel(store_dir)
    for name, *arguments in operations:
        getattr(pair, name)(*arguments)
    for (topic, queue_id), sent in pair.model.items():
        assert pair.store.bounds(topic, queue_id) == (0, len(sent))
        assert read_bodies(pair.store, topic, queue_id) == sent
    pair.store.close(NOW)
    report = check(pair.store_dir.directory, pair.store_dir.config, files=pair.store_dir.files)
    assert report.verdict == "whole"


def test_closing_does_not_wait_for_a_long_index(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.store.INDEX_AT_CLOSE_COUNT", 0)
    store = store_dir.open()
    fill(store, 30)
    store.close(NOW)
    assert check(store_dir.directory, store_dir.config, files=store_dir.files).verdict == "whole"
    store = store_dir.open()
    index_all(store)
    assert len(store.query("T", "U1", count_max=99).positions) == 30


def test_a_record_is_found_by_position_and_size(store: Store) -> None:
    stored = fill(store, 3)
    for one in stored:
        found = store.record_at(one.position, one.size)
        assert found is not None
        assert decode(found).position == one.position
        assert store.record_at(one.position, one.size + 1) is None
    assert store.record_at(-1, 100) is None
    assert store.record_at(store.end_position, 100) is None
