"""A replica's store equals its master's, to the byte, whatever the cuts of the stream."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft, fill, index_all, parts, read_bodies
from tests.store.replication.conftest import copy_log, frames_of

from roquet.model.errors import MessageIllegal, StoreError, StoreFailed, StoreFull
from roquet.store.config import DELAY_LEVELS_MS
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import EntryTagCodes
from roquet.store.replication.replicated_log import Arrival, QueueOffsetMismatch
from roquet.store.store import Store
from roquet.wire.records.record import MAGIC_BLANK, TOTAL_AND_MAGIC, encode_properties, pack

pytestmark = pytest.mark.usefixtures("form")

Pair = tuple[Store, Store]
"""A master and its replica, which is empty."""

KEYS = st.sampled_from(["", "U1", "U2", "ключ", "a b"])
MESSAGES = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "topic": st.sampled_from(["T", "U", "SCHEDULE_TOPIC_XXXX", "t" * 130]),
        "queue_id": st.integers(0, 2),
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12, 16, 32]),
        "tag": st.sampled_from(["red", "", "été", "\U0001f600"]),
        "key": KEYS,
        "long": st.sampled_from([0, 0, 600]),
    }
)
STEPS = st.lists(MESSAGES | st.lists(st.binary(max_size=60), min_size=1, max_size=9), max_size=60)


def store_message(store: Store, row: dict[str, Any], now_ms: int) -> None:
    """Store a message as a broker would: with the tag code that its topic asks for."""
    properties = {"TAGS": row["tag"], "UNIQ_KEY": row["key"], "KEYS": "k1 k2"}
    if row["topic"].startswith("SCHEDULE"):
        properties["DELAY"] = "3"
    if row["long"]:
        properties["long"] = "x" * row["long"]
    flag, topic = row["sys_flag"], row["topic"]
    code = EntryTagCodes(DELAY_LEVELS_MS)(topic.encode(), encode_properties(properties), now_ms)
    made = draft(
        row["body"], topic, row["queue_id"], properties=properties, sys_flag=flag, tag_code=code,
        born_host=bytes(20 if flag & 16 else 8), store_host=bytes(20 if flag & 32 else 8),
    )  # fmt: skip
    store.append(made, now_ms)


def contents(directory: DataDir) -> dict[Path, bytes]:
    """Files of log, queues and index, without the zeros at their ends."""
    return {
        path: data.rstrip(b"\0")
        for path, data in directory.snapshot().items()
        if path.parts[2] in ("commitlog", "consumequeue", "index") and data.strip(b"\0")
    }


@given(STEPS, st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_a_copy_equals_its_master_to_the_byte(
    steps: list[Any], sizes: list[int], count_max: int
) -> None:  # fmt: skip
    one, two = DataDir(), DataDir()
    master, replica = one.open(), two.open()
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            store_message(master, step, NOW + number * 700)
        else:
            text = encode_properties({"UNIQ_KEY": f"B{number}"})
            rows = [(0, body, text, 0) for body in step]
            master.append_batch(draft(topic="B"), parts(rows), NOW + number * 700)
        if number % 7 == 0:
            copy_log(master, replica, sizes)
    copy_log(master, replica, sizes)
    index_all(master)
    assert (replica.raw.dispatched, replica.raw.end) == (master.raw.end, master.raw.end)
    master.close(NOW)
    replica.close(NOW)
    assert contents(two) == contents(one)


@pytest.fixture
def pair() -> Pair:
    return DataDir().open(), DataDir().open()


# -- read ----------------------------------------------------------------------------------------


def test_a_read_ends_with_the_file_or_the_log(store: Store) -> None:
    assert bytes(store.raw.read(0, 100)) == b""
    results = fill(store, 60)
    raw = store.raw
    assert (raw.begin, raw.end, raw.file_size) == (0, store.end_position, 8192)
    assert raw.dispatched == raw.end
    whole = bytes(raw.read(0, 1 << 20))
    assert len(whole) == raw.file_size
    blank = max(r.position + r.size for r in results if r.position < raw.file_size)
    assert TOTAL_AND_MAGIC.unpack_from(whole, blank) == (raw.file_size - blank, MAGIC_BLANK)
    assert len(raw.read(raw.file_size, 1 << 20)) == raw.end - raw.file_size
    assert len(raw.read(5, 10)) == 10
    assert raw.read(5, 10).readonly
    assert bytes(raw.read(raw.end, 10)) == b""
    for position in (-1, raw.end + 1):
        with pytest.raises(StoreError, match=f"positions 0 to {raw.end}, and not {position}"):
            raw.read(position, 10)


# -- append --------------------------------------------------------------------------------------


def test_bytes_are_appended_at_the_end_alone(pair: Pair) -> None:
    master, replica = pair
    fill(master, 10)
    data = bytes(master.raw.read(0, 300))
    replica.raw.append(0, data)
    for position in (0, 299, 301):
        with pytest.raises(
            StoreError, match=f"ends at 300, and the bytes to append are from {position}"
        ):
            replica.raw.append(position, b"x")
    assert replica.raw.end == 300
    replica.raw.append(300, b"")
    with pytest.raises(StoreError, match="do not fit into one file of 8192 bytes"):
        replica.raw.append(300, bytes(8192 - 299))
    assert (replica.raw.end, bytes(replica.raw.read(0, 999))) == (300, data)


def test_a_negative_position_begins_no_log(store_dir: DataDir) -> None:
    with pytest.raises(StoreError, match="from -8192"):
        store_dir.open().raw.append(-8192, b"x")


def test_a_full_disk_takes_no_bytes_but_queues_are_built(pair: Pair, store_dir: DataDir) -> None:
    master, replica = pair
    fill(master, 5)
    replica.raw.append(0, master.raw.read(0, 500))
    replica.watch_disk(replica.disk.__class__(1000, 0))
    with pytest.raises(StoreFull):
        replica.raw.append(500, master.raw.read(500, 99))
    assert replica.raw.dispatch()
    replica.watch_disk()
    replica.raw.append(500, master.raw.read(500, 99))


def test_a_file_that_finds_no_room_is_tried_again(store_dir: DataDir, store: Store) -> None:
    files = store_dir.files
    files.capacity = sum(files.blocks.values())
    for _ in range(2):
        with pytest.raises(StoreFull):
            store.raw.append(16384, b"x" * 10)
        assert store.raw.end == store.raw.begin
    files.capacity = 1 << 40
    store.raw.append(8192, b"x" * 10)
    assert (store.raw.begin, store.raw.end) == (8192, 8202)


def test_a_closed_store_takes_nothing(store: Store) -> None:
    store.close(NOW)
    with pytest.raises(StoreError, match="is closed"):
        store.raw.append(0, b"x")
    with pytest.raises(StoreError, match="is closed"):
        store.raw.dispatch()
    with pytest.raises(StoreError, match="is closed"):
        store.raw.cut_torn()


def test_a_failed_store_takes_nothing(store: Store) -> None:
    store.fail("the disk is gone")
    with pytest.raises(StoreFailed):
        store.raw.append(0, b"x")
    with pytest.raises(StoreFailed):
        store.raw.dispatch()


def test_messages_of_its_own_wait_until_all_is_dispatched(pair: Pair) -> None:
    master, replica = pair
    fill(master, 5)
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    replica.raw.dispatch(2)
    for _ in range(2):
        with pytest.raises(StoreError, match="takes no messages of its own"):
            replica.append(draft(), NOW)
    replica.raw.dispatch()
    assert replica.append(draft(b"own"), NOW).queue_offset == 5
    assert read_bodies(replica)[-1] == b"own"


@pytest.mark.parametrize("count", range(70, 90))
def test_a_promoted_replica_goes_on_where_its_log_ends(
    count: int
) -> None:  # fmt: skip
    """Also in front of a blank, behind one, and at a file's very end."""
    master, directory = DataDir().open(), DataDir()
    replica = directory.open()
    fill(master, count)
    copy_log(master, replica)
    for _ in range(60):
        assert (
            replica.append(draft(b"y" * 50), NOW).position
            == master.append(draft(b"y" * 50), NOW).position
        )
    assert read_bodies(replica) == read_bodies(master)
    assert read_bodies(directory.open_after_kill()) == read_bodies(master)


def test_a_file_filled_to_its_end_is_followed_by_another() -> None:
    master, replica = DataDir().open(), DataDir().open()
    fill(master, 60)
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    replica.raw.dispatch()
    assert replica.raw.dispatched == replica.raw.end == replica.raw.file_size
    assert replica.append(draft(), NOW).position == replica.raw.file_size


# -- begin ---------------------------------------------------------------------------------------


def test_an_empty_log_begins_at_any_file() -> None:
    master, directory = DataDir().open(), DataDir()
    fill(master, 200)
    replica = directory.open()
    replica.flush_all(NOW)
    for position, data in frames_of(master, 16384, [1000]):
        replica.raw.append(position, data)
    while replica.raw.dispatch(7):
        pass
    least = next(n for n in range(200) if master.queue_stats.entries("T", 0, n, 1)[0][0] >= 16384)
    assert replica.raw.begin == replica.begin_position == 16384
    for store in (replica, directory.open_after_kill(), directory.open_after_kill()):
        assert store.bounds("T", 0) == (least, 200)
        assert read_bodies(store) == read_bodies(master)[least:]
        assert not store.damage
    store.close(NOW)
    store = directory.open()
    while store.scrub(5000):
        pass
    assert (store.raw.begin, store.bounds("T", 0), store.damage) == (16384, (least, 200), [])


def test_a_log_begins_inside_a_file() -> None:
    master, directory = DataDir().open(), DataDir()
    start = fill(master, 200)[100].position
    replica = directory.open()
    for position, data in frames_of(master, start, [1000]):
        replica.raw.append(position, data)
    replica.raw.dispatch()
    for store in (replica, directory.open_after_kill(), directory.open_after_kill()):
        assert (store.raw.begin, store.bounds("T", 0)) == (start, (100, 200))
        assert read_bodies(store) == read_bodies(master)[100:]
        while store.scrub(5000):
            pass
        assert not store.damage
        with pytest.raises(StoreError, match=f"positions {start} to"):
            store.raw.read(start - 1, 10)
    store.raw.truncate(start)
    assert (store.raw.begin, store.raw.end) == (start, start)
    directory.files.remove(directory.path("checkpoint"))


def test_an_empty_log_begins_again_elsewhere() -> None:
    master, directory = DataDir().open(), DataDir()
    fill(master, 200)
    replica = directory.open()
    for position, data in frames_of(master, 24576, [1000]):
        replica.raw.append(position, data)
    replica.raw.dispatch()
    replica.flush_all(NOW)
    replica.raw.truncate(24576)
    assert (replica.raw.begin, replica.raw.end) == (24576, 24576)
    replica = directory.open_after_kill()
    assert (replica.raw.begin, replica.raw.end) == (24576, 24576)
    replica.flush_all(NOW)
    for position, data in frames_of(master, 8192, [1000]):
        replica.raw.append(position, data)
    replica.raw.dispatch()
    for store in (replica, directory.open_after_kill()):
        assert store.raw.begin == 8192
        least, end = store.bounds("T", 0)
        assert (read_bodies(store), end) == (read_bodies(master)[least:], 200)
        assert not store.damage


def test_a_log_that_cannot_begin_anew_fails_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDir()
    store = directory.open()
    fill(store, 3)
    store.raw.truncate(0)

    def refuse(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(directory.files, "remove", refuse)
    with pytest.raises(StoreFailed, match="could not be cut at 8192"):
        store.raw.append(8192, b"x")


# -- dispatch ------------------------------------------------------------------------------------


def test_a_step_tells_what_came_into_which_queue(pair: Pair) -> None:
    master, replica = pair
    for n in range(6):
        master.append(draft(queue_id=n % 2, tag_code=112785), NOW)
    master.append(draft(topic="H", sys_flag=4), NOW)
    master.append(draft(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "1"}), NOW)
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    assert replica.raw.dispatch(3) == [
        Arrival("T", 0, 0, [112785, 112785]), Arrival("T", 1, 0, [112785])
    ]  # fmt: skip
    assert replica.raw.dispatch() == [
        Arrival("T", 1, 1, [112785, 112785]), Arrival("T", 0, 2, [112785]),
        Arrival("SCHEDULE_TOPIC_XXXX", 0, 0, [NOW + 1000]),
    ]  # fmt: skip
    assert replica.raw.dispatch() == []
    assert replica.topics() == ["SCHEDULE_TOPIC_XXXX", "T"]


@given(st.integers(1, 700))
@settings(deadline=None)
def test_part_of_a_record_waits_for_the_rest(cut: int) -> None:
    master, replica = DataDir().open(), DataDir().open()
    results = [master.append(draft(b"x" * 90), NOW) for _ in range(4)]
    replica.raw.append(0, master.raw.read(0, cut))
    replica.raw.dispatch()
    whole = [r for r in results if r.position + r.size <= cut]
    assert replica.bounds("T", 0)[1] == len(whole)
    assert replica.raw.dispatched == sum(r.size for r in whole)
    assert replica.message_at(replica.raw.dispatched) is None
    replica.raw.append(replica.raw.end, master.raw.read(replica.raw.end, 1 << 20))
    replica.raw.dispatch()
    assert replica.bounds("T", 0)[1] == 4


@pytest.mark.parametrize("size", [1, 7, 8, 9, 50, 8191])
def test_blanks_may_come_in_parts(size: int) -> None:
    master, replica = DataDir().open(), DataDir().open()
    fill(master, 60)
    for position, data in frames_of(master, 0, [size]):
        replica.raw.append(position, data)
        replica.raw.dispatch()
    assert replica.raw.dispatched == master.raw.end
    assert replica.bounds("T", 0) == (0, 60)


@pytest.mark.parametrize("size", range(8, 120, 6))
def test_a_short_end_of_a_file_is_passed_once_it_is_there(size: int) -> None:
    """Less than a record and a blank need is no place for a record."""
    master, replica = DataDir().open(), DataDir().open()
    first = master.append(draft(b""), NOW)
    master.append(draft(b"x" * (8192 - 2 * first.size - size)), NOW)
    master.append(draft(b"y" * 200), NOW)
    for position, data in frames_of(master, 0, [8192 - size - 1, 3, 1]):
        replica.raw.append(position, data)
        replica.raw.dispatch()
        assert replica.raw.dispatched in {0, first.size, 8192 - size, 8192, master.raw.end}
    assert replica.raw.dispatched == master.raw.end


def test_an_offset_that_leaves_a_hole_or_goes_back_is_named() -> None:
    for offset, sys_flag in ((0, 0), (2, 0), (9, 8), (2_000_000, 0)):
        master, replica = DataDir().open(), DataDir().open()
        master.append(draft(b"a" * 50), NOW)
        data = bytes(master.raw.read(0, 1 << 20))
        data += record(len(data), offset, sys_flag=sys_flag)
        replica.raw.append(0, data)
        assert replica.raw.dispatch(), "what is in front of it is done"
        with pytest.raises(
            QueueOffsetMismatch, match=f"offset {offset} of T/0, whose next offset is 1"
        ) as found:
            replica.raw.dispatch()
        error = found.value
        assert (error.topic, error.queue_id, error.expected, error.found) == ("T", 0, 1, offset)
        assert error.position == replica.raw.dispatched == master.raw.end
        assert replica.bounds("T", 0) == (0, 1)


def record(
    position: int, offset: int, topic: bytes = b"T", sys_flag: int = 0, queue_id: int = 0
) -> bytes:
    return pack(
        queue_id, 0, offset, position, sys_flag, NOW, bytes(8), NOW, bytes(8), 0, 0, b"b", topic,
        b"",
    )  # fmt: skip


def test_a_topic_made_anew_goes_on_once_it_is_deleted_here(pair: Pair) -> None:
    master, replica = pair
    master.append(draft(b"old"), NOW)
    master.delete_topic("T")
    master.append(draft(b"new"), NOW)
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    replica.raw.dispatch()
    with pytest.raises(QueueOffsetMismatch) as found:
        replica.raw.dispatch()
    replica.delete_topic(found.value.topic)
    replica.raw.dispatch()
    assert read_bodies(replica) == [b"new"]
    assert replica.raw.dispatched == master.raw.end


def test_records_of_a_deleted_topic_get_no_entries() -> None:
    """As in a recovery: a tombstone says up to where."""
    master, directory = DataDir().open(), DataDir()
    for n in range(4):
        master.append(draft(b"%d" % n), NOW)
        master.append(draft(b"%d" % n, topic="U"), NOW)
    replica, opened = directory.open_parts()
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    opened.tombstones.add("T", master.raw.end)
    replica.raw.append(master.raw.end, record(master.raw.end, 0))
    replica.raw.dispatch()
    assert read_bodies(replica, "U") == [b"0", b"1", b"2", b"3"]
    assert read_bodies(replica, "T") == [b"b"]


def test_a_name_that_no_queue_can_have_is_passed(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    store, data = store_dir.open(), b""
    for topic, queue_id, flag in ((b"a/b", 0, 0), (b"\xff", 0, 0), (b"T", -1, 0), (b"..", 0, 8)):
        for offset in range(2):
            data += record(len(data), offset, topic, flag, queue_id)
    data += record(len(data), 0)
    store.raw.append(0, data)
    while store.raw.dispatched < store.raw.end:
        store.raw.dispatch()
    assert store.topics() == ["T"]
    assert caplog.text.count("gets no queue entry") == 4


def test_impossible_names_without_end_are_not_all_remembered(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    store, position = store_dir.open(), 0
    for n in range(130):
        data = record(position, 0, b"a/%d" % n)
        if position % 8192 + len(data) > 8000:
            blank = 8192 - position % 8192
            store.raw.append(position, TOTAL_AND_MAGIC.pack(blank, MAGIC_BLANK) + bytes(blank - 8))
            position += blank
            data = record(position, 0, b"a/%d" % n)
        store.raw.append(position, data)
        position += len(data)
    while store.raw.dispatched < store.raw.end:
        store.raw.dispatch()
    assert store.topics() == []


def test_damaged_bytes_are_passed_once_a_record_follows(pair: Pair) -> None:
    master, replica = pair
    results = fill(master, 30)
    hole = results[10]
    data = bytearray(master.raw.read(0, 1 << 20))
    data[hole.position + 88] ^= 1  # its body: the checksum disagrees
    data[results[11].position : results[11].position + 8] = bytes(8)
    stop = results[12].position
    replica.raw.append(0, bytes(data[: stop + 5]))
    for _ in range(2):
        replica.raw.dispatch()
        assert replica.raw.dispatched == hole.position
    replica.raw.append(stop + 5, bytes(data[stop + 5 :]))
    replica.raw.dispatch()
    assert replica.raw.dispatched == master.raw.end
    assert replica.bounds("T", 0) == (0, 30)
    assert numbers(read_bodies(replica)) == [n for n in range(30) if n not in (10, 11)]
    assert [(known.start, known.stop) for known in replica.damage] == [(hole.position, stop)]


def numbers(bodies: list[bytes]) -> list[int]:
    """The numbers in the bodies of `fill`."""
    return [int(body.split()[0]) for body in bodies]


def test_damage_up_to_the_end_of_a_file_is_passed_with_it(pair: Pair) -> None:
    master, replica = pair
    results = fill(master, 60)
    data = bytearray(master.raw.read(0, 1 << 20))
    first = [r for r in results if r.position < 8192][-2]
    data[first.position :] = bytes(8192 - first.position)
    replica.raw.append(0, bytes(data[:-1]))
    replica.raw.dispatch()
    assert replica.raw.dispatched == first.position
    replica.raw.append(8191, bytes(data[-1:]))
    replica.raw.append(8192, master.raw.read(8192, 1 << 20))
    replica.raw.dispatch()
    assert replica.raw.dispatched == master.raw.end
    assert replica.bounds("T", 0) == (0, 60)
    assert numbers(read_bodies(replica)) == [
        n for n in range(60) if n not in (first.queue_offset, first.queue_offset + 1)
    ]


def test_a_queue_without_room_goes_on_when_there_is_some() -> None:
    master, directory = DataDir().open(), DataDir()
    for n in range(120):
        master.append(draft(b"%03d" % n, queue_id=n % 2), NOW)
    replica = directory.open()
    while replica.raw.end < master.raw.end:
        replica.raw.append(replica.raw.end, master.raw.read(replica.raw.end, 1 << 20))
    files = directory.files
    files.capacity = sum(files.blocks.values())
    with pytest.raises(StoreFull):
        replica.raw.dispatch()
    files.capacity += 400  # the first queue gets room, the second does not
    with pytest.raises(StoreFull):
        replica.raw.dispatch()
    assert replica.raw.dispatched == 0
    files.capacity = 1 << 40
    while replica.raw.dispatch():
        pass
    assert [len(read_bodies(replica, "T", n)) for n in (0, 1)] == [60, 60]


def test_a_queue_whose_first_file_cannot_be_made_begins_with_its_first_record_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, directory = DataDir().open(), DataDir()
    results = [master.append(draft(b"%03d" % n), NOW) for n in range(10)]
    replica, start = directory.open(), results[4].position
    replica.raw.append(start, master.raw.read(start, 1 << 20))

    def refuse(*_: Any) -> None:
        raise StoreFull("No space left on device")

    with monkeypatch.context() as full:
        full.setattr(directory.files, "create", refuse)
        for _ in range(2):
            with pytest.raises(StoreFull):
                replica.raw.dispatch()
            assert replica.bounds("T", 0) == (0, 0)
    replica.raw.dispatch()
    assert replica.bounds("T", 0)[1] == 10
    assert replica.read("T", 0, 4).next_offset == master.read("T", 0, 4).next_offset == 10


def test_a_queue_that_has_files_waits_for_room_for_the_next() -> None:
    master, directory = DataDir().open(), DataDir()
    for n in range(10):
        master.append(draft(b"%03d" % n), NOW)
    replica = directory.open()
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    replica.raw.dispatch()
    for n in range(10, 150):
        master.append(draft(b"%03d" % n), NOW)
    while replica.raw.end < master.raw.end:
        replica.raw.append(replica.raw.end, master.raw.read(replica.raw.end, 1 << 20))
    files = directory.files
    files.capacity = sum(files.blocks.values())
    with pytest.raises(StoreFull):
        replica.raw.dispatch()
    assert replica.bounds("T", 0)[1] == 10
    files.capacity = 1 << 40
    while replica.raw.dispatch():
        pass
    assert len(read_bodies(replica, "T", 0)) == 150


def test_entries_of_a_step_that_failed_half_way_are_not_written_twice(
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    master, directory = DataDir().open(), DataDir()
    for n in range(20):
        master.append(draft(b"%03d" % n, queue_id=n % 2), NOW)
    replica, opened = directory.open_parts()
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    second = opened.queues.obtain("T", 1)
    put = type(second).put_many

    def fail(queue: Any, entries: bytes) -> None:
        if queue is second:
            raise StoreError("too many open files")
        put(queue, entries)

    with monkeypatch.context() as patch:
        patch.setattr(type(second), "put_many", fail)
        assert [arrival.queue_id for arrival in replica.raw.dispatch()] == [0]
        assert replica.raw.dispatched == 0
    replica.raw.dispatch()
    assert [len(read_bodies(replica, "T", n)) for n in (0, 1)] == [10, 10]
    assert replica.raw.dispatched == master.raw.end


# -- a lost connection, a restart ----------------------------------------------------------------


@given(st.integers(1, 30_000), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_half_record_is_cut_off(
    fill_store: Any, cut: int, is_dispatched: bool
) -> None:  # fmt: skip
    master, results = fill_store
    directory = DataDir()
    replica = directory.open()
    cut = min(cut, master.raw.end)
    while replica.raw.end < cut:
        at = replica.raw.end
        replica.raw.append(at, master.raw.read(at, cut - at))
    if is_dispatched:
        replica.raw.dispatch()
    whole = max((r.position + r.size for r in results if r.position + r.size <= cut), default=0)
    if cut % 8192 == 0 or (cut // 8192 * 8192 > whole):
        whole = cut // 8192 * 8192
    after = directory.open_after_kill()
    assert after.raw.dispatched == after.raw.end
    assert after.bounds("T", 0)[1] == sum(r.position + r.size <= cut for r in results)
    replica.raw.cut_torn()
    assert replica.raw.end == whole
    replica.raw.dispatch()
    assert replica.raw.dispatched == whole
    for position, data in frames_of(master, whole, [777]):
        replica.raw.append(position, data)
    replica.raw.dispatch()
    assert replica.bounds("T", 0) == master.bounds("T", 0)


def test_a_half_record_is_cut_off_without_a_look_at_the_queues(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def visit(*_: object) -> None:
        raise AssertionError("none of them can have an entry of it")

    master, replica = pair
    fill(master, 50)
    copy_log(master, replica)
    end = replica.raw.end
    fill(master, 1)
    replica.raw.append(end, master.raw.read(end, 40))
    replica.flush_all(NOW)
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueues, "get", visit)
        patched.setattr(ConsumeQueues, "packed_ends", visit)
        replica.raw.cut_torn()
    assert (replica.raw.end, replica.raw.dispatched) == (end, end)
    copy_log(master, replica)
    assert read_bodies(replica) == read_bodies(master)


@pytest.fixture(scope="module")
def fill_store() -> Any:
    store = DataDir().open()
    return store, [store.append(draft(b"x" * (n * 7 % 400)), NOW + n) for n in range(80)]


def test_a_tail_that_was_not_flushed_may_be_lost() -> None:
    master, directory = DataDir().open(), DataDir()
    fill(master, 50)
    replica = directory.open()
    copy_log(master, replica)
    replica.raw.truncate(replica.raw.end)
    assert replica.flush_log() == replica.flushed_position == master.raw.end
    replica.flush_all(NOW)
    fill(master, 50)
    copy_log(master, replica, [300])
    directory.files = directory.files.after_power_loss(Random(3))
    after = directory.open()
    count = after.bounds("T", 0)[1]
    assert 50 <= count <= 100
    assert read_bodies(after) == read_bodies(master)[:count]
    copy_log(master, after)
    assert read_bodies(after) == read_bodies(master)


def test_the_checkpoint_of_a_replica_names_what_is_dispatched() -> None:
    master, directory = DataDir().open(), DataDir()
    fill(master, 40)
    replica = directory.open()
    replica.raw.append(0, master.raw.read(0, 3000))
    replica.raw.dispatch(5)
    replica.flush_all(NOW)
    assert replica.flushed_position == 3000
    replica.close(NOW)
    replica = directory.open()
    assert 5 < replica.bounds("T", 0)[1] < 40
    assert replica.raw.dispatched == replica.raw.end <= 3000
    assert read_bodies(replica) == read_bodies(master)[: replica.bounds("T", 0)[1]]


def test_retention_deletes_copied_files() -> None:
    master, directory = DataDir().open(), DataDir()
    fill(master, 200)
    replica = directory.open()
    for position in range(0, master.raw.end, 8192):
        replica.raw.append(position, master.raw.read(position, 8192))
    later = NOW + 100 * 86_400_000
    assert replica.expire(later, at_once=True) == [], "nothing is dispatched"
    copy_log(master, replica)
    replica.flush_all(NOW)
    assert replica.expire(later, at_once=True)
    assert replica.raw.begin == replica.begin_position > 0
    least, end = replica.bounds("T", 0)
    assert (least > 0, end) == (True, 200)
    after = directory.open_after_kill()
    assert (after.bounds("T", 0), after.raw.begin) == ((least, 200), replica.raw.begin)
    assert read_bodies(after) == read_bodies(master)[least:]


def test_a_message_that_fits_no_file_is_still_the_senders_fault(pair: Pair) -> None:
    master, replica = pair
    fill(master, 2)
    replica.raw.append(0, master.raw.read(0, 1 << 20))
    with pytest.raises(MessageIllegal, match="does not fit"):
        replica.append(draft(b"x" * 9000), NOW)


def test_the_last_record_is_the_same_at_master_and_replica(pair: Pair) -> None:
    master, replica = pair
    assert replica.raw.last_record() is None
    results = fill(master, 30)
    copy_log(master, replica)
    last = master.raw.last_record()
    assert last is not None
    assert last == replica.raw.last_record() == (results[-1].position, last[1])
    assert last[1] == master.message_at(results[-1].position)


def test_the_last_record_in_front_of_a_position_is_found_through_the_queues(pair: Pair) -> None:
    master, replica = pair
    results = fill(master, 60)
    copy_log(master, replica)
    for store in (master, replica):
        for before, result in pairwise(results):
            found = store.raw.last_record(result.position)
            assert found == (before.position, master.message_at(before.position))
        assert store.raw.last_record(0) is None
        assert store.raw.last_record(store.raw.end + 9) == store.raw.last_record()
