from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft, fill

from roquet.store.commit_log.log import CommitLog
from roquet.store.config import StoreConfig
from roquet.store.reading.entry_scan import UNPACK_MAX
from roquet.store.store import Draft, Store
from roquet.wire.records.record import decode_many

pytestmark = pytest.mark.usefixtures("form")


def test_contiguous_records_are_one_part(store: Store) -> None:
    fill(store, 20)
    found = store.read("T", 0, 3, count_max=10)
    assert (len(found.parts), found.count, found.next_offset) == (1, 10, 13)
    assert found.size == len(found.parts[0])


def test_records_apart_are_joined_in_order(store: Store) -> None:
    for n in range(12):
        store.append(draft(b"%02d" % n, queue_id=n % 3 // 2), NOW)
    found = store.read("T", 0, 0)
    (part,) = found.parts
    assert [record.body for record in decode_many(part)] == [
        b"%02d" % n for n in (0, 1, 3, 4, 6, 7, 9, 10)
    ]
    assert (found.count, found.size) == (8, len(part))


def test_a_read_crosses_files_of_log_and_queue(store: Store) -> None:
    fill(store, 130)
    found = store.read("T", 0, 0, count_max=1000, bytes_max=1 << 20)
    assert (found.count, found.next_offset, len(found.parts)) == (130, 130, 1)


def test_limits_of_count_and_bytes(store: Store) -> None:
    (one, *_) = fill(store, 20)
    assert store.read("T", 0, 0, bytes_max=3 * one.size).count == 3
    assert store.read("T", 0, 0, bytes_max=3 * one.size - 1).count == 2
    assert store.read("T", 0, 0, bytes_max=1).count == 1
    assert store.read("T", 0, 0, count_max=5).next_offset == 5


def test_a_read_looks_at_few_records_that_do_not_fit(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of an earlier process are looked at before they are sent, perhaps from the disk."""
    store = store_dir.open()
    fill(store, 2_000)
    store.close(NOW)
    store = store_dir.open()
    looked: list[int] = []
    has_all = CommitLog.has_all

    def look(commit_log: CommitLog, positions: Sequence[int], sizes: Sequence[int]) -> bool:
        looked.append(len(sizes))
        return has_all(commit_log, positions, sizes)

    monkeypatch.setattr(CommitLog, "has_all", look)
    found = store.read("T", 0, 0, count_max=2_000, bytes_max=1_000)
    assert found.count > 0
    assert sum(looked) <= 2 * UNPACK_MAX


@pytest.mark.parametrize(("offset", "following"), [(-1, 0), (20, 20), (99, 20)])
def test_outside_of_the_queue_there_is_nothing(store: Store, offset: int, following: int) -> None:
    fill(store, 20)
    found = store.read("T", 0, offset)
    assert (found.parts, found.count, found.next_offset) == ([], 0, following)


def test_an_unknown_queue_has_nothing(store: Store) -> None:
    assert store.read("T", 0, 5).next_offset == 0
    assert store.bounds("T", 0) == (0, 0)
    assert store.offset_by_time("T", 0, NOW) == 0
    assert store.earliest_time("T", 0) == -1
    assert store.message_at(0) is None
    assert store.queue_ids("T") == []


def test_only_wanted_tags_are_read(store: Store) -> None:
    for n in range(30):
        store.append(draft(b"%d" % n, tag_code=n % 3), NOW)
    found = store.read("T", 0, 4, count_max=4, wanted={0}.__contains__)
    assert (found.count, found.next_offset) == (4, 18)
    assert store.read("T", 0, 0, wanted={9}.__contains__).next_offset == 30


def test_a_read_with_a_filter_comes_to_an_end(store: Store) -> None:
    for n in range(900):
        store.append(draft(b"", tag_code=n), NOW)
    found = store.read("T", 0, 0, wanted={899}.__contains__)
    assert (found.count, found.next_offset) == (0, 800)
    assert store.read("T", 0, 800, wanted={899}.__contains__).count == 1


def test_a_read_with_a_tag_filter_may_examine_more_entries(store: Store) -> None:
    for n in range(1100):
        store.append(draft(b"%d" % n, tag_code=n), NOW)
    assert store.read("T", 0, 0, wanted=frozenset({1050})).next_offset == 800
    found = store.read("T", 0, 0, wanted=frozenset({1050}), scan_max=1060)
    assert (found.count, found.next_offset) == (1, 1060)


@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.frozensets(st.integers(0, 5)),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_a_predicate_of_tag_codes_finds_the_same_messages_as_a_set(
    codes: list[int], wanted: frozenset[int], count: int, at: int
) -> None:
    store = Store.open(None, StoreConfig(queue_file_entries=20), now_ms=NOW, pid=1)
    for n, code in enumerate(codes):
        store.append(Draft("T", 0, b"%d" % n, b"", tag_code=code), NOW)
    told = store.read("T", 0, at, count_max=count, wanted=wanted)
    asked = store.read("T", 0, at, count_max=count, wanted=wanted.__contains__)
    assert b"".join(told.parts) == b"".join(asked.parts)
    assert (told.count, told.size) == (asked.count, asked.size)
    left = [n for n, code in enumerate(codes) if code in wanted and n >= told.next_offset]
    assert told.count == count or not left
    store.close(NOW)


def test_a_block_is_what_a_read_finds(store: Store) -> None:
    one, *_ = [store.append(draft(b"%03d" % n, queue_id=n % 3 // 2), NOW) for n in range(150)]
    whole = store.read("T", 0, 3, count_max=40, bytes_max=1 << 20)
    block = store.read_block("T", 0, 3, count_max=40, bytes_max=1 << 20)
    assert block.data == b"".join(whole.parts)
    assert block.edges == [n * one.size for n in range(41)]
    assert block.next_offset == 43
    block = store.read_block("T", 0, 43, count_max=40, bytes_max=1 << 20)
    assert block.next_offset == 50, "the queue's first file ends there"
    block = store.read_block("T", 0, 3, count_max=50, bytes_max=5 * one.size)
    assert (block.edges[-1], block.next_offset) == (5 * one.size, 8)
    assert store.read_block("T", 0, 3, count_max=50, bytes_max=1).next_offset == 4
    for topic, offset, following in (("T", 100, 100), ("T", 999, 100), ("T", -1, 0), ("U", 7, 0)):
        block = store.read_block(topic, 0, offset, count_max=50, bytes_max=1 << 20)
        assert (block.data, block.edges, block.next_offset) == (b"", [0], following)


def test_a_block_leaves_out_what_is_lost(store_dir: DataDir, store: Store) -> None:
    appended = fill(store, 40)
    store.close(NOW)
    store = store_dir.open()
    assert len(store.read_block("T", 0, 0, count_max=40, bytes_max=1 << 20).edges) == 41
    for n in (4, 5, 30):
        store_dir.bytes_at(appended[n].position, 8)[:] = bytes(8)
    for _ in range(2):
        block = store.read_block("T", 0, 0, count_max=40, bytes_max=1 << 20)
        found = store.read("T", 0, 0, count_max=40, bytes_max=1 << 20)
        assert (len(block.edges), block.next_offset) == (38, 40)
        assert block.data == b"".join(found.parts)
    block = store.read_block("T", 0, 4, count_max=2, bytes_max=1 << 20)
    assert (block.data, block.edges, block.next_offset) == (b"", [0], 6)
    block = store.read_block("T", 0, 8, count_max=9, bytes_max=1 << 20)
    assert block.data == b"".join(store.read("T", 0, 8, count_max=9).parts)


@pytest.mark.parametrize("begin", [3 << 32, (4 << 32) - 8192])
def test_a_block_far_back_in_the_log_is_read_like_any_other(store_dir: DataDir, begin: int) -> None:
    """Positions above 4 GiB differ in more than their low words."""
    path = store_dir.path(f"commitlog/{begin:020d}")
    store_dir.files.create(path, 8192)
    store = store_dir.open()
    appended = fill(store, 45)
    assert appended[0].position == begin
    block = store.read_block("T", 0, 0, count_max=45, bytes_max=1 << 20)
    assert block.data == b"".join(store.read("T", 0, 0, count_max=45).parts)
    assert (len(block.edges), block.next_offset) == (46, 45)


def test_offsets_by_time_are_the_first_since_and_the_last_until(store: Store) -> None:
    for ms in (10, 20, 20, 30):
        store.append(draft(), NOW + ms)
    first = [store.offset_by_time("T", 0, NOW + ms) for ms in (0, 10, 11, 20, 21, 30, 31)]
    assert first == [0, 0, 1, 1, 3, 3, 4]
    last = [store.offset_by_time("T", 0, NOW + ms, upper=True) for ms in (0, 10, 19, 20, 29, 99)]
    assert last == [0, 0, 0, 2, 2, 3]
    assert store.store_time_at("T", 0, 3) == NOW + 30
    assert store.store_time_at("T", 0, 4) == -1
    assert store.earliest_time("T", 0) == NOW + 10


def test_times_are_found_around_damage(store_dir: DataDir, store: Store) -> None:
    appended = fill(store, 20)
    for n in (9, 10, 19):
        store_dir.bytes_at(appended[n].position, 60)[:] = bytes(60)
    assert [store.offset_by_time("T", 0, NOW + n) for n in (8, 11, 12, 18)] == [8, 9, 12, 18]
    assert store.store_time_at("T", 0, 9) == -1


def test_a_position_inside_a_record_is_no_message(store: Store) -> None:
    appended = fill(store, 3)
    assert store.message_at(appended[1].position) is not None
    assert store.message_at(appended[1].position + 1) is None
    assert store.message_at(store.end_position) is None
    assert store.message_at(-1) is None


def test_records_in_hand_outlive_the_store(store: Store) -> None:
    fill(store, 3)
    part = store.read("T", 0, 0).parts[0]
    before = bytes(part)
    store.close(NOW)
    assert bytes(part) == before


def test_damage_is_said_once(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    appended = fill(store, 20)
    store.close(NOW)
    store_dir.bytes_at(appended[4].position, 8)[:] = bytes(8)
    store = store_dir.open()
    for _ in range(3):
        assert store.read("T", 0, 0).count == 19
        assert store.read("T", 0, 4).next_offset == 20
    assert caplog.text.count("cannot be read") == 1
    assert [str(d) for d in store.damage] == [
        f"positions {appended[4].position} to {appended[5].position - 1}: T queue 0 offsets 4 to 4"
    ]


def test_a_long_read_is_cut_where_its_limits_are(store_dir: DataDir, store: Store) -> None:
    one, *_ = [store.append(draft(b"x", queue_id=n % 2), NOW) for n in range(600)]
    for reopened in (False, True):
        if reopened:
            store.close(NOW)
            store = store_dir.open()
        found = store.read("T", 0, 2, count_max=1000, bytes_max=1 << 62)
        assert (found.count, found.next_offset) == (298, 300)
        records = [record for part in found.parts for record in decode_many(part)]
        assert [record.queue_offset for record in records] == list(range(2, 300))
        found = store.read("T", 0, 2, count_max=200, bytes_max=150 * one.size)
        assert (found.count, found.next_offset, found.size) == (150, 152, 150 * one.size)


def test_records_lost_in_the_middle_are_left_out_of_a_long_read(
    store_dir: DataDir, store: Store
) -> None:
    appended = fill(store, 40)
    store.close(NOW)
    for n in (4, 5, 30):
        store_dir.bytes_at(appended[n].position, 8)[:] = bytes(8)
    store = store_dir.open()
    for _ in range(2):
        found = store.read("T", 0, 0, count_max=40, bytes_max=1 << 20)
        assert (found.count, found.next_offset) == (37, 40)
        assert b"".join(found.parts) == b"".join(
            bytes(store_dir.bytes_at(kept.position, kept.size))
            for n, kept in enumerate(appended)
            if n not in (4, 5, 30)
        )


def test_a_hole_is_said_once_whatever_number_of_messages_was_there(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 120)
    store.close(NOW)
    store_dir.bytes_at(0, 8192)[:] = bytes(8192)
    store = store_dir.open()
    assert [store.read("T", 0, at).next_offset for at in (0, 5, 37)] == [32, 37, 69]
    assert [str(d) for d in store.damage] == ["positions 0 to 8191: T queue 0 offsets 0 to 37"]
    assert caplog.text.count("cannot be read") == 1
    while store.scrub(1 << 20):
        pass
    assert [str(d) for d in store.damage] == ["positions 0 to 8191: T queue 0 offsets 0 to 37"]


def test_a_hole_at_the_end_of_the_log_ends_there(store_dir: DataDir, store: Store) -> None:
    last = fill(store, 3)[-1]
    store_dir.bytes_at(last.position, 8)[:] = bytes(8)
    store.close(NOW)
    store = store_dir.open()
    assert store.read("T", 0, 0).count == 2
    fill(store, 2)
    assert store.read("T", 0, 3).count == 2
