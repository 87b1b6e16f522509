from pathlib import Path

import msgspec
import pytest
from tests.conftest import NOT_COMPILED
from tests.store.conftest import NOW, DataDir, Row, draft, fill, index_all, parts, read_bodies

from roquet.model.errors import MessageIllegal, StoreError, StoreFailed, StoreFull
from roquet.store.filesystem.files import FileWriter
from roquet.store.store import AppendResult, BatchBody, Draft, Store, StoredBatch
from roquet.wire.calls.send import Send
from roquet.wire.fields import encode_call
from roquet.wire.java_hash import hash_code
from roquet.wire.plain_send import PlainSend, plain_sends
from roquet.wire.records.batch import encode_item
from roquet.wire.records.record import decode
from roquet.wire.records.speedups import COMPILED

pytestmark = pytest.mark.usefixtures("form")

PAIR = b"a\x01b\x02"


def part_of(one: Draft) -> Row:
    return one.flag, one.body, one.properties, one.tag_code


def test_every_field_of_a_draft_is_in_the_record(store: Store) -> None:
    store.append(draft(), NOW)
    given = draft(
        b"body", "Topic", 3, flag=5, sys_flag=16, born_ms=NOW - 7, born_host=bytes(range(20)),
        store_host=b"\x01\x02\x03\x04\x00\x00\x00\x05", reconsume_times=2, prepared_position=9,
        tag_code=-4,
    )  # fmt: skip
    place = store.append(given, NOW)
    record = decode(store.message_at(place.position) or b"")
    assert (record.topic, record.queue_id, record.queue_offset) == ("Topic", 3, 0)
    assert (record.position, record.size, record.stored_ms) == (place.position, place.size, NOW)
    assert (record.flag, record.sys_flag, record.born_ms) == (5, 16, NOW - 7)
    assert (record.born_host, record.store_host) == (given.born_host, given.store_host)
    assert (record.reconsume_times, record.prepared_position) == (2, 9)
    assert (record.body, record.properties) == (b"body", given.properties)
    assert store.read("Topic", 3, 0, wanted={-4}.__contains__).count == 1


def test_a_large_message_is_stored_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = DataDir().open(), DataDir().open()
    place = small.append(draft(b"x" * 3000), NOW)
    monkeypatch.setattr("roquet.store.writer.SPLIT_BODY_MIN", 3000)
    for _ in range(5):  # into the next file of the log
        large.append(draft(b"x" * 3000), NOW)
    assert (
        bytes(large.message_at(0) or b"") == bytes(small.message_at(place.position) or b"") != b""
    )
    assert read_bodies(large) == [b"x" * 3000] * 5


class KilledWriter:
    """A file open for writing, whose process is killed after some writes."""

    def __init__(self, writer: FileWriter, left: int) -> None:
        self._writer, self._left = writer, left

    def write(self, start: int, data: bytes | memoryview) -> None:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        self._writer.write(start, data)

    def close(self) -> None:
        self._writer.close()


@pytest.mark.parametrize("written", range(3))
def test_a_kill_between_the_parts_of_a_large_message_loses_that_one_alone(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    monkeypatch.setattr("roquet.store.writer.SPLIT_BODY_MIN", 3000)
    store, open_writer = store_dir.open(), store_dir.files.open_writer
    store.append(draft(b"acknowledged"), NOW)
    monkeypatch.setattr(
        store_dir.files, "open_writer", lambda path: KilledWriter(open_writer(path), written)
    )
    large = draft(b"x" * 3000)
    with pytest.raises(KeyboardInterrupt):
        store.append(large, NOW)
    again = store_dir.open_after_kill()
    assert read_bodies(again) == [b"acknowledged"]
    again.append(large, NOW)
    assert read_bodies(again) == [b"acknowledged", large.body]


def test_a_batch_lies_in_one_piece(store_dir: DataDir, store: Store) -> None:
    fill(store, 35)
    begin = store.end_position
    rows = [(n, b"x" * n, PAIR, -n) for n in range(9)]
    found = store.append_batch(draft(flag=99), parts(rows), NOW)
    assert (found.queue_offset, store.end_position) == (35, found.end)
    assert found.positions[0] >= begin
    records = [decode(store.message_at(position) or b"") for position in found.positions]
    assert [record.queue_offset for record in records] == list(range(35, 44))
    assert [record.flag for record in records] == list(range(9))
    assert [record.body for record in records] == [b"x" * n for n in range(9)]
    stops = [record.position + record.size for record in records]
    assert stops == [*found.positions[1:], found.end]
    file_size = store_dir.config.log_file_size
    assert found.positions[0] // file_size == found.end // file_size
    assert store.read("T", 0, 35, wanted={-3}.__contains__).count == 1


def test_a_record_of_a_batch_is_the_same_as_one_sent_alone() -> None:
    sent = draft(
        b"body", "L" * 200, 2, flag=3, sys_flag=32, born_ms=NOW - 7, store_host=bytes(range(20)),
        reconsume_times=2, prepared_position=9,
    )  # fmt: skip
    alone, together = DataDir().open(), DataDir().open()
    alone.append(sent, NOW)
    together.append_batch(sent, parts([part_of(sent)]), NOW)
    assert bytes(alone.message_at(0) or b"") == bytes(together.message_at(0) or b"") != b""


def test_a_batch_beyond_the_rest_of_a_file_goes_whole_into_the_next(
    store_dir: DataDir, store: Store
) -> None:
    store.append(draft(b"x" * 6000), NOW)
    rows = [part_of(draft(b"%d" % n * 500)) for n in range(4)]
    found = store.append_batch(draft(), parts(rows), NOW)
    assert found.positions[0] == store_dir.config.log_file_size
    assert len(read_bodies(store)) == 5


def test_a_batch_crosses_files_of_its_queue(store: Store) -> None:
    for n in range(15):
        rows = [(0, b"%d" % (7 * n + m), PAIR, 0) for m in range(7)]
        store.append_batch(draft(), parts(rows), NOW)
    assert read_bodies(store) == [b"%d" % n for n in range(105)]


def test_a_batch_longer_than_a_file_of_its_queue_fits(store_dir: DataDir) -> None:
    store_dir.config = msgspec.structs.replace(store_dir.config, log_file_size=1 << 20)
    store = store_dir.open()
    wanted = [b"%d" % n for n in range(333)]
    store.append_batch(draft(), parts([(0, body, PAIR, 0) for body in wanted]), NOW)
    assert read_bodies(store) == wanted
    assert read_bodies(store_dir.open_after_kill()) == wanted


def test_no_messages_are_no_batch(store: Store) -> None:
    found = store.append_batch(draft(), parts([]), NOW)
    assert (found.queue_offset, found.positions, found.end) == (0, [], 0)
    assert store.append(draft(), NOW).queue_offset == 0


def test_a_batch_with_an_illegal_message_stores_nothing(store: Store) -> None:
    fine, long = part_of(draft()), part_of(draft(properties={"k": "v" * 40_000}))
    with pytest.raises(MessageIllegal, match="32767 fit"):
        store.append_batch(draft(), parts([fine, long]), NOW)
    with pytest.raises(MessageIllegal, match="zero byte"):
        store.append_batch(draft(), parts([fine, (0, b"", b"a\x01b\x00", 0)]), NOW)
    with pytest.raises(MessageIllegal, match="does not fit into a file"):
        store.append_batch(draft(), parts([(0, b"x" * 1000, PAIR, 0)] * 8), NOW)
    with pytest.raises(MessageIllegal):
        store.append_batch(draft(topic="a/b"), parts([fine]), NOW)
    assert (store.end_position, store.bounds("T", 0)) == (0, (0, 0))


@pytest.mark.parametrize("bad", [b"a\x01b\x00", b"\x00"])
def test_properties_that_end_in_a_zero_are_refused(store: Store, bad: bytes) -> None:
    given = msgspec.structs.replace(draft(), properties=bad)
    with pytest.raises(MessageIllegal, match="zero byte"):
        store.append(given, NOW)


def test_a_body_beyond_a_file_is_refused(store: Store) -> None:
    with pytest.raises(MessageIllegal, match="does not fit into a file"):
        store.append(draft(b"x" * 9000), NOW)
    assert store.append(draft(b"x" * 7000), NOW).position == 0


def test_prepared_and_rolled_back_records_take_no_offset(store_dir: DataDir, store: Store) -> None:
    store.append(draft(b"a"), NOW)
    prepared = store.append(draft(b"half", sys_flag=4), NOW)
    store.append(draft(b"gone", sys_flag=12), NOW)
    store.append_batch(draft(sys_flag=8), parts([part_of(draft(b"b"))]), NOW)
    with pytest.raises(MessageIllegal, match="cannot be in a batch"):
        store.append_batch(draft(sys_flag=4), parts([part_of(draft())]), NOW)
    assert prepared.queue_offset == 0
    assert read_bodies(store) == [b"a", b"b"]
    assert decode(store.message_at(prepared.position) or b"").body == b"half"
    assert read_bodies(store_dir.open_after_kill()) == [b"a", b"b"]


def test_a_full_disk_on_the_way_into_the_next_file_changes_nothing(
    store_dir: DataDir, store: Store
) -> None:
    store.append(draft(b"x" * 6000), NOW)
    store_dir.files.capacity = sum(store_dir.files.blocks.values()) + 100
    before = store.end_position
    for _ in range(3):
        with pytest.raises(StoreFull):
            store.append(draft(b"y" * 3000), NOW)
    assert (store.end_position, store.bounds("T", 0)) == (before, (0, 1))
    store.append(draft(b"z" * 100), NOW)
    store_dir.files.capacity *= 2
    store.append(draft(b"y" * 3000), NOW)
    assert [len(body) for body in read_bodies(store)] == [6000, 100, 3000]
    assert [len(body) for body in read_bodies(store_dir.open_after_kill())] == [6000, 100, 3000]


def forbid_maps(store_dir: DataDir, monkeypatch: pytest.MonkeyPatch, *parts_of_paths: str) -> None:
    """No more maps of these files."""
    map_file = store_dir.files.map

    def failing(path: Path, size: int, *, writable: bool = True) -> memoryview:
        if any(part in str(path) for part in parts_of_paths):
            raise StoreError("no memory")
        return map_file(path, size, writable=writable)

    monkeypatch.setattr(store_dir.files, "map", failing)


def test_a_message_whose_queue_cannot_be_written_is_taken_back(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(draft(b"first", queue_id=1), NOW)
    before = store.end_position
    with monkeypatch.context() as patch:
        forbid_maps(store_dir, patch, "consumequeue/T/0")
        with pytest.raises(StoreError, match="no memory"):
            store.append(draft(b"refused"), NOW)
    assert store.end_position == before
    files = store_dir.files
    assert read_bodies(store_dir.open_after_kill(), "T", 0) == []
    store_dir.files = files
    store.append(draft(b"second"), NOW)
    assert read_bodies(store_dir.open_after_kill(), "T", 0) == [b"second"]


@pytest.mark.parametrize(("count", "file"), [(10, 1000), (60, 2000)])
def test_a_batch_that_cannot_be_written_to_its_queue_is_undone(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch, count: int, file: int
) -> None:
    for _ in range(45):
        store.append(draft(), NOW)
    rows = parts([(0, b"refused", b"", 0)] * count)
    before = store.end_position
    with monkeypatch.context() as patch:
        forbid_maps(store_dir, patch, f"consumequeue/T/0/{file:020d}")
        with pytest.raises(StoreError, match="no memory"):
            store.append_batch(draft(), rows, NOW)
    assert store.bounds("T", 0) == (0, 45)
    assert store.end_position in (before, 8192), "a blank may have been written, and no record"
    assert store_dir.entry("T", 0, 45) == (0, 0, 0)
    files = store_dir.files
    assert read_bodies(store_dir.open_after_kill()) == [b"body"] * 45
    store_dir.files = files
    assert store.append_batch(draft(), rows, NOW).queue_offset == 45
    assert read_bodies(store)[45:] == [b"refused"] * count


def plain_body(count: int, size: int = 7) -> BatchBody:
    text = b"UNIQ_KEY\x01k\x02TAGS\x01red\x02"
    items = [encode_item(n, b"%d" % (n % 10) * size, text) for n in range(count)]
    return BatchBody(b"".join(items), b"", b"CLUSTER\x01C\x02")


@pytest.mark.skipif(not COMPILED, reason=NOT_COMPILED)
def test_a_plain_batch_is_stored_as_its_columns_are(form: str) -> None:
    first, second = DataDir().open(), DataDir().open()
    text = b"UNIQ_KEY\x01k\x02TAGS\x01red\x02CLUSTER\x01C\x02"
    found: list[StoredBatch] = []
    for store in (first, second):
        store.append(draft(tag_code=0), NOW)
        for count in (9, 50, 60, 1):  # into the next file of the log, and of the queue
            body = plain_body(count)
            stored = store.append_body(draft(), body, NOW) if store is first else None
            assert (stored is None) is (store is second or form == "python")
            if stored is None:
                rows = [(n, b"%d" % (n % 10) * 7, text, hash_code("red")) for n in range(count)]
                store.append_batch(draft(), parts(rows), NOW)
            else:
                found.append(stored)
    assert first.end_position == second.end_position
    assert read_bodies(first) == read_bodies(second)
    for store in (first, second):
        assert store.read("T", 0, 0, wanted={hash_code("red")}.__contains__).count
    ends = [one.appended.end for one in found]
    assert ends == sorted(ends)
    for one in found:
        assert one.appended.end == one.appended.positions[0] + one.appended.size
        assert one.waits
        assert set(one.tag_codes) == {hash_code("red")}


def test_a_batch_that_the_columns_have_to_judge_is_left(store: Store) -> None:
    assert store.append_body(draft(), plain_body(1), NOW) is None, "the queue is new"
    store.append(draft(), NOW)
    before = store.end_position
    for odd in (draft(sys_flag=4), draft(prepared_position=1), draft(topic="a/b")):
        assert store.append_body(odd, plain_body(1), NOW) is None
    bad = BatchBody(b"torn", b"", b"CLUSTER\x01C\x02")
    assert store.append_body(draft(), bad, NOW) is None
    store.refuse_appends("another writes")
    assert store.append_body(draft(), plain_body(1), NOW) is None
    assert store.end_position == before


@pytest.mark.skipif(not COMPILED, reason=NOT_COMPILED)
def test_a_plain_batch_that_cannot_be_written_to_its_queue_is_undone(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    if form == "python":
        return
    told: list[int] = []
    store.on_append(lambda: told.append(store.end_position))
    for _ in range(45):
        store.append(draft(), NOW)
    before = store.end_position
    with monkeypatch.context() as patch:
        forbid_maps(store_dir, patch, "consumequeue/T/0/")
        with pytest.raises(StoreError, match="no memory"):
            store.append_body(draft(), plain_body(10), NOW)
    assert store.bounds("T", 0) == (0, 45)
    assert store.end_position in (before, 8192), "a blank may have been written, and no record"
    assert len(told) == 45
    assert store.append_body(draft(), plain_body(10), NOW) is not None
    assert told[45:] == [store.end_position]
    assert len(read_bodies(store)) == 55


def test_an_append_that_cannot_be_undone_ends_writing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(draft(queue_id=1), NOW)

    def failing(*_: object) -> None:
        raise StoreError("no memory")

    monkeypatch.setattr("roquet.store.consume_queue.queue.ConsumeQueue.put", failing)
    monkeypatch.setattr("roquet.store.consume_queue.queue.ConsumeQueue.undo_append", failing)
    with pytest.raises(StoreFailed, match="T/1: no memory: nothing more is accepted") as unknown:
        store.append(draft(queue_id=1), NOW)
    assert not unknown.value.definite
    assert store.failure is not None
    with pytest.raises(StoreFailed, match="T/1: no memory: nothing more is accepted") as refused:
        store.append(draft(queue_id=1), NOW)
    assert refused.value.definite, "nothing of this one was written"


def test_a_queue_that_begins_late_is_filled_although_the_first_try_failed(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = store_dir.open_parts()
    queue = opened.queues.obtain("T", 0)
    queue.end = 3
    with monkeypatch.context() as patch:
        forbid_maps(store_dir, patch, "consumequeue/T/0")
        with pytest.raises(StoreError, match="no memory"):
            store.append(draft(), NOW)
    assert store.append(draft(), NOW).queue_offset == 3
    assert store_dir.entry("T", 0, 2)[1] > 0, "else a recovery would take the queue for empty"


# Plain sends: see wire.plain_send.

TAIL = b"CLUSTER\x01c\x02"


def plain(body: bytes = b"body", queue_id: int = 0) -> PlainSend:
    """A plain send, as the compiled reader gives it where it is in use."""
    call = Send(
        producer_group="g", topic="T", queue_id=queue_id, born_timestamp=NOW - 7, flag=5,
        reconsume_times=2, properties="UNIQ_KEY\x01U1\x02KEYS\x01k\x02TAGS\x01red\x02", body=body,
    )  # fmt: skip
    found = plain_sends(encode_call(call, opaque=1), 1 << 24, None)
    return found[0] if found else PlainSend(
        opaque=1, serialize_type=0, language=12, version=1, topic="T", queue_id=queue_id,
        sys_flag=0, born_timestamp=NOW - 7, flag=5, reconsume_times=2,
        properties=call.properties.encode(), tag_code=112785, unique_key="U1", body=body, key=None,
        end=0,
    )  # fmt: skip


def draft_of(send: PlainSend) -> Draft:
    return Draft(
        send.topic, send.queue_id, send.body, send.properties + TAIL, send.tag_code, send.flag,
        16, send.born_timestamp, bytes(range(20)), b"12345678", send.reconsume_times,
    )  # fmt: skip


def append_plain(store: Store, send: PlainSend) -> AppendResult | None:
    return store.append_plain(send, 16, bytes(range(20)), b"12345678", TAIL, NOW)


def test_a_plain_send_is_stored_as_its_draft_is() -> None:
    one, other = DataDir(), DataDir()
    usual, plainly = one.open(), other.open()
    stored = [usual.append(draft_of(plain(bytes([n]), n % 2)), NOW) for n in range(200)]
    found, straight = [], 0
    for n in range(200):
        send = plain(bytes([n]), n % 2)
        result = append_plain(plainly, send)
        straight += result is not None
        found.append(result or plainly.append(draft_of(send), NOW))
    assert found == stored
    assert 100 < straight < 195, "some begin a queue, a file of it, or a file of the log"
    assert plainly.end_position == usual.end_position
    index_all(usual)
    index_all(plainly)
    assert plainly.query("T", "k") == usual.query("T", "k")
    plainly.flush_all(NOW)
    usual.flush_all(NOW)
    assert other.snapshot() == one.snapshot()
    assert read_bodies(other.open_after_kill(), "T", 1) == [bytes([n]) for n in range(1, 200, 2)]


def test_a_plain_send_without_its_places_in_memory_is_left(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    assert append_plain(store, plain()) is None
    assert store.end_position == 0
    store.append(draft(), NOW)
    before = store_dir.snapshot()
    assert append_plain(store, plain(queue_id=1)) is None
    assert append_plain(store, plain(b"x" * 2048)) is None
    for file in (opened.log.tail, opened.queues.obtain("T", 0).tail):
        assert file is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file, "mapped_view", None)
            assert append_plain(store, plain()) is None
    assert store_dir.snapshot() == before
    assert append_plain(store, plain()) is not None


def test_a_flush_after_a_plain_send_writes_its_queue(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    store.append(draft(), NOW)
    store.flush_all(NOW)
    queue_file = opened.queues.obtain("T", 0).tail
    assert queue_file is not None
    assert not queue_file.is_dirty
    assert append_plain(store, plain()) is not None
    assert queue_file.is_dirty


def test_a_plain_send_is_left_where_a_draft_is_refused(store: Store) -> None:
    store.append(draft(), NOW)
    store.refuse_appends("this log is a copy")
    assert append_plain(store, plain()) is None
    store.refuse_appends(None)
    assert append_plain(store, plain()) is not None
    store.fail("the disk lost a write")
    assert append_plain(store, plain()) is None
    store.close(NOW)
    assert append_plain(store, plain()) is None


def test_a_listener_hears_of_plain_sends(store: Store) -> None:
    ends: list[int] = []
    store.append(draft(), NOW)
    store.on_append(lambda: ends.append(store.end_position))
    assert append_plain(store, plain(b"x" * 2048)) is None
    assert append_plain(store, plain()) is not None
    assert ends == [store.end_position]
