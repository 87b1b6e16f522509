from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft, fill, index_all, parts

from roquet.model.errors import StoreError
from roquet.rules.retention import HOUR_MS, DiskUsage
from roquet.store.config import StoreConfig
from roquet.store.key_index.dispatch import Dispatcher, HashedKeys, hash_key, hash_keys, key_hashes
from roquet.store.key_index.index import KeyIndex
from roquet.store.recovery.open_directory import OpenDirectory
from roquet.store.store import BatchBody, Draft, Store
from roquet.wire.java_hash import hash_code
from roquet.wire.records.batch import encode_item
from roquet.wire.records.partial_decode import index_keys
from roquet.wire.records.record import encode_properties

pytestmark = pytest.mark.usefixtures("form")

DISPATCH = "roquet.store.key_index.dispatch"


def test_the_index_follows_the_log_in_steps(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    fill(store, 100)
    opened.log.unindexed.drop_before(store.end_position)
    assert store.dispatch(30) == 30
    assert 0 < store.indexed_position < store.end_position
    assert len(store.query("T", "U1", count_max=999).positions) == 30
    assert [store.dispatch(30) for _ in range(4)] == [30, 30, 10, 0]
    assert store.indexed_position == store.end_position


def test_a_late_index_takes_more_records_at_once(store: Store) -> None:
    fill(store, 1_000)
    assert [store.dispatch(30) for _ in range(8)] == [500, 250, 125, 62, 31, 30, 2, 0]
    assert store.indexed_position == store.end_position


def test_a_late_index_that_reads_the_log_stays_slow(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    fill(store, 1_000)
    opened.log.unindexed.drop(1)
    assert store.dispatch(30) == 30


def test_rolled_back_messages_are_not_found(store: Store) -> None:
    store.append(draft(sys_flag=12), NOW)
    store.append(draft(sys_flag=8), NOW)
    index_all(store)
    assert len(store.query("T", "U1").positions) == 1


def test_a_hole_in_the_log_is_stepped_over(store_dir: DataDir, store: Store) -> None:
    appended = fill(store, 20)
    store_dir.bytes_at(appended[5].position, 60)[:] = bytes(60)
    while store.dispatch(4):
        pass
    assert len(store.query("T", "U1", count_max=99).positions) == 19


def test_records_that_expired_before_they_were_indexed_are_skipped(store: Store) -> None:
    for day in range(10):
        store.append(draft(b"x" * 7000), NOW + day * 24 * HOUR_MS)
    store.flush_all(NOW)
    store.expire(NOW + 9 * 24 * HOUR_MS, DiskUsage(100, 20))
    assert store.indexed_position < store.begin_position
    index_all(store)
    positions = store.query("T", "U1", count_max=99).positions
    assert positions[0] == store.begin_position
    assert store.indexed_position == store.end_position


def test_the_index_waits_while_the_disk_is_full(store_dir: DataDir, store: Store) -> None:
    fill(store, 60)
    store_dir.files.capacity = sum(store_dir.files.blocks.values()) + 500
    while store.dispatch(10):
        pass
    assert store.indexed_position < store.end_position
    store_dir.files.capacity *= 2
    while store.dispatch(10):
        pass
    assert len(store.query("T", "U1", count_max=99).positions) == 60


def entries(opened: OpenDirectory) -> list[tuple[int, int, int, int]]:
    """All entries of the index, in order of insertion."""
    files = opened.index.files
    return [file.entry(number) for file in files for number in range(1, file.next)]


def append_plain(store: Store, count: int, now_ms: int) -> None:
    """A plain batch; without a compiler it is stored column by column."""
    text = encode_properties({"UNIQ_KEY": f"P{now_ms}", "KEYS": "x  y"})
    body = BatchBody(encode_item(0, b"body", text) * count, b"", b"CLUSTER\x01C\x02")
    if store.append_body(draft(), body, now_ms) is None:
        text += b"CLUSTER\x01C\x02"
        store.append_batch(draft(), parts([(0, b"body", text, 0)] * count), now_ms)


def mixed(store: Store, kinds: list[int]) -> None:
    """Messages of all kinds: alone, in a batch, in a transaction, without keys, long ones."""
    for n, kind in enumerate(kinds):
        if kind == 0:
            part = (0, b"body", encode_properties({"UNIQ_KEY": f"B{n}", "KEYS": "x y"}), 0)
            store.append_batch(draft(), parts([part] * 3), NOW + n)
        elif kind == 5:
            append_plain(store, 3, NOW + n)
        elif kind in {4, 8, 12}:
            store.append(draft(sys_flag=kind), NOW + n)
        elif kind == 1:
            store.append(draft(properties={"KEYS": "k" * 2000}), NOW + n)
        else:
            store.append(draft(properties={"KEYS": f"a  b {n}"} if kind == 2 else {}), NOW + n)


def next_record(opened: OpenDirectory) -> int:
    """Where the index continues: in front of or behind a blank at the end of a file."""
    end = opened.log.end
    found = opened.log.walk(opened.dispatcher.position, end, end, check_crc=False)
    return next((at for _, at, _ in found), end)


KINDS = st.lists(st.sampled_from([0, 0, 1, 2, 2, 3, 4, 5, 5, 8, 12]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KINDS, st.integers(1, 50)), max_size=4))
@example([([2, 3, 3], 3)])
@example([([0, 0, 0, 3, 3], 1)])
@example([([3, 5, 5, 3, 5, 1, 5], 2)])
def test_buffered_records_are_indexed_like_those_read_from_the_log(
    rounds: list[tuple[list[int], int]],
) -> None:
    followed, followed_parts = DataDir().open_parts()
    read, read_parts = DataDir().open_parts()
    for kinds, count_max in rounds:
        for store in (followed, read):
            mixed(store, kinds)
        read_parts.log.unindexed.drop_before(read.end_position)
        taken = followed.dispatch(count_max)
        assert read.dispatch(taken or count_max) == taken
        assert next_record(followed_parts) == next_record(read_parts)
        assert entries(followed_parts) == entries(read_parts)
    read_parts.log.unindexed.drop_before(read.end_position)
    while followed.dispatch(7):
        pass
    while read.dispatch(7):
        pass
    assert followed.indexed_position == read.indexed_position == followed.end_position
    assert entries(followed_parts) == entries(read_parts)


def test_records_that_left_the_buffer_are_read_from_the_log(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.commit_log.unindexed_buffer.BUFFERED_MAX", 10)
    store, opened = store_dir.open_parts()
    appended = fill(store, 95)
    assert 7 < len(opened.log.unindexed) <= 10
    while store.dispatch(20):
        pass
    assert [position for _, position, _, _ in entries(opened)] == [a.position for a in appended]
    assert not opened.log.unindexed


def test_ordinary_messages_are_not_read_again(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = store_dir.open_parts()
    fill(store, 20)
    part = (0, b"", encode_properties({"UNIQ_KEY": "U1"}), 0)
    store.append_batch(draft(), parts([part] * 20), NOW)
    monkeypatch.setattr(opened.log, "walk", None)
    assert store.dispatch(100) == 40
    assert len(store.query("T", "U1", count_max=99).positions) == 40


def test_the_keys_of_a_plain_batch_are_hashed_once(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = store_dir.open_parts()
    fill(store, 20)
    append_plain(store, 20, NOW)
    monkeypatch.setattr(opened.log, "walk", None)
    assert store.dispatch(100) == 40
    assert len(store.query("T", "x", count_max=99).positions) == 20
    assert len(store.query("T", f"P{NOW}", count_max=99).positions) == 20


def test_long_properties_do_not_fill_the_memory(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    properties = {"KEYS": "k" * 2000}
    store.append(draft(properties=properties), NOW)
    store.append_batch(draft(), parts([(0, b"", encode_properties(properties), 0)]), NOW)
    assert not opened.log.unindexed
    store.dispatch()
    assert len(store.query("T", "k" * 2000).positions) == 2


def test_a_kill_leaves_no_record_unindexed_or_indexed_twice(
    store_dir: DataDir, store: Store
) -> None:
    appended = fill(store, 30)
    store.dispatch(10)
    store.flush_all(NOW)
    store.dispatch(10)
    store_dir.files = store_dir.files.copy()
    store, opened = store_dir.open_parts()
    appended += fill(store, 30)
    while store.dispatch(7):
        pass
    assert [position for _, position, _, _ in entries(opened)] == [a.position for a in appended]


def test_keys_that_may_be_indexed_already_are_searched_first(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    appended = fill(store, 20)
    store.dispatch(8)
    fill(store, 5)
    again = Dispatcher(opened.log, opened.index, 0)
    while again.step(6):
        pass
    assert len(entries(opened)) == len(appended) + 5


def fail_hashes_of_several_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the keys of several records together not be hashed."""

    def fail(topics: Sequence[bytes], texts: Sequence[bytes]) -> HashedKeys:
        if len(topics) > 1:
            raise ZeroDivisionError
        return hash_keys(topics, texts)

    monkeypatch.setattr(f"{DISPATCH}.hash_keys", fail)


def test_a_record_that_cannot_be_indexed_is_reported_and_the_others_are_indexed(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, opened = store_dir.open_parts()
    keys = [{"UNIQ_KEY": "U1", **({"KEYS": "bad"} if n == 5 else {})} for n in range(20)]
    positions = [store.append(draft(properties=one), NOW).position for one in keys]
    bad, good = positions[5], positions[:5] + positions[6:]
    reported = list[tuple[int, Exception]]()

    def fail_for_any_bad(topics: Sequence[bytes], texts: Sequence[bytes]) -> HashedKeys:
        if any(b"bad" in text for text in texts):
            raise OverflowError("odd")
        return hash_keys(topics, texts)

    with monkeypatch.context() as patch:
        patch.setattr(f"{DISPATCH}.hash_keys", fail_for_any_bad)
        store.on_unindexed(lambda position, error: reported.append((position, error)))
        while store.dispatch(4):
            pass
        again = Dispatcher(opened.log, opened.index, 0)  # finds all but one indexed already
        assert caplog.text == ""
        while again.step(4):
            pass
        assert "cannot be found by its keys" in caplog.text
    assert [position for position, _ in reported] == [bad]
    assert store.indexed_position == again.position == store.end_position
    assert sorted(store.query("T", "U1", count_max=99).positions) == good
    store.reindex(bad + 1)
    assert sorted(store.query("T", "U1", count_max=99).positions) == good
    store.reindex(bad)
    assert sorted(store.query("T", "U1", count_max=99).positions) == positions


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("error", [StoreError("gone"), OSError(5, "EIO")])
def test_an_error_of_the_disk_is_raised_and_skips_no_record(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception, is_alone: bool
) -> None:
    fill(store, 3)

    def fail(*_: object) -> None:
        raise error

    if is_alone:
        fail_hashes_of_several_keys(monkeypatch)
    monkeypatch.setattr(KeyIndex, "put_many", fail)
    with pytest.raises(type(error)):
        store.dispatch()
    assert store.indexed_position == 0


def test_a_record_that_is_indexed_alone_waits_while_the_disk_is_full(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 2)
    fail_hashes_of_several_keys(monkeypatch)
    monkeypatch.setattr(KeyIndex, "put_many", lambda *_: 0)
    assert store.dispatch() == 0
    assert store.indexed_position == 0


def test_the_index_is_at_the_end_when_no_record_can_be_read(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 2)
    store_dir.bytes_at(0, store.end_position)[:] = bytes(store.end_position)
    fail_hashes_of_several_keys(monkeypatch)
    assert store.dispatch() == 0
    assert store.indexed_position == store.end_position


def keyed(count: int) -> "Draft":
    return draft(properties={"KEYS": " ".join(f"k{n}" for n in range(count))})


def test_a_step_takes_few_messages_with_thousands_of_keys(store_dir: DataDir) -> None:
    config = StoreConfig(log_file_size=1 << 22, index_slots=100, index_entries=100_000)
    store = Store.open(None, config, now_ms=NOW)
    for _ in range(10):
        store.append(keyed(4_800), NOW)
    assert [store.dispatch(1_000) for _ in range(3)] == [1_000] * 3
    assert len(store.query("T", "k4799", count_max=99, bytes_max=1 << 30).positions) == 3
    index_all(store)
    assert store.indexed_position == store.end_position
    assert len(store.query("T", "k4799", count_max=99, bytes_max=1 << 30).positions) == 10


def test_a_late_index_takes_so_many_keys_at_once(store_dir: DataDir) -> None:
    config = StoreConfig(log_file_size=1 << 22, index_slots=100, index_entries=500_000)
    store = Store.open(None, config, now_ms=NOW)
    for _ in range(1_000):
        store.append(keyed(100), NOW)
    assert store.dispatch(30) == 500
    assert len(store.query("T", "k99", count_max=999, bytes_max=1 << 30).positions) == 64
    index_all(store)
    assert store.indexed_position == store.end_position
    assert len(store.query("T", "k99", count_max=9_999, bytes_max=1 << 30).positions) == 1_000


NAMES = st.text("ab#é😀\x00z", max_size=30)
ASCII_NAMES = st.text(st.characters(max_codepoint=127, exclude_characters="\x01\x02 "), max_size=40)

TEXTS = st.lists(
    st.lists(
        st.sampled_from(
            [b"UNIQ_KEY\x01", b"KEYS\x01", b"\x02", b"a", b"b c", b" ", b"\0", b"\xc3\xa9", b"\xff",
             b"UNIQ_KEY\x01u1\x02", b"UNIQ_KEY\x01u2\x02", b"KEYS\x01k\x02", b"XUNIQ_KEY\x01x\x02"]
        ),
        max_size=5,
    ).map(b"".join),
    max_size=5,
)  # fmt: skip


def java(topic: str, key: str) -> int:
    """The least number has no absolute value."""
    signed = hash_code(f"{topic}#{key}")
    return abs(signed) if signed != -(2**31) else 0


def unique(key: str) -> bytes:
    return f"UNIQ_KEY\x01{key}\x02".encode()


@given(NAMES, st.lists(NAMES, max_size=5))
def test_hashes_are_javas_made_not_negative(topic: str, keys: list[str]) -> None:
    for key in keys:
        assert hash_key(topic.encode(), key.encode()) == java(topic, key)


def test_the_least_number_counts_as_zero() -> None:
    assert hash_code("T#DWIECHC") == -(2**31)
    assert hash_key(b"T", b"DWIECHC") == 0


def test_a_key_that_is_not_utf_8_is_read_as_java_does_it() -> None:
    assert hash_key(b"T", b"a\xffb") == java("T", "a\ufffdb")


@pytest.mark.usefixtures("form")
class TestManyRecords:
    @given(NAMES, st.lists(ASCII_NAMES, max_size=30))
    @example("T", [f"7F0000015AB4{n:020X}" for n in range(1000, 1300)])
    @example("T", ["hash"] * 9)
    @example("T", ["DWIECHC", "DWIECHD"])
    def test_hashes_of_unique_keys_are_those_of_each(self, topic: str, keys: list[str]) -> None:
        hashes, owners = hash_keys([topic.encode()] * len(keys), list(map(unique, keys)))
        named = [(owner, key) for owner, key in enumerate(keys) if key]
        assert owners == [owner for owner, _ in named]
        assert hashes == [java(topic, key) for _, key in named]

    @given(TEXTS, st.lists(NAMES, min_size=5, max_size=5))
    @example([b"UNIQ_KEY\x01u%d\x02TAGS\x01t\x02" % n for n in range(5)], ["T"] * 5)
    @example([b"KEYS\x01k%d\x02UNIQ_KEY\x01u\x02" % n for n in range(5)], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u\x02UNIQ_KEY\x01v\x02", b"\0"], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u1\x02", b"UNIQ_KEY\x01\x02u\x02"], ["T"] * 5)
    @example([b"aUNIQ_KEY\x01u\x02", b"\x02UNIQ_KEY\x01u\x02"], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u\x02", b"UNIQ_KEY\x01uu"], ["T"] * 5)
    @example([b"UNIQ_KEY\x01u"], ["é"] * 5)
    def test_each_record_has_all_its_keys(self, texts: list[bytes], names: list[str]) -> None:
        topics = [name.encode() for name in names[: len(texts)]]
        hashes, owners = hash_keys(topics, texts)
        expected = [
            (owner, hash_key(topics[owner], key))
            for owner, text in enumerate(texts)
            for key in index_keys(text)
        ]
        assert list(zip(owners, hashes, strict=True)) == expected

    def test_hashes_stay_right_from_message_to_message(self) -> None:
        for topic in ("T", "T#7F", "Flüge"):
            keys = [f"7F0000015AB4{n:016X}" for n in range(3_000)]
            hashes, owners = hash_keys([topic.encode()] * 3_000, list(map(unique, keys)))
            assert owners == list(range(3_000))
            assert hashes == [java(topic, key) for key in keys]

    def test_an_error_of_one_key_is_raised(self) -> None:
        def fail(topic: bytes, key: bytes) -> int:
            raise OverflowError("odd")

        with pytest.raises(OverflowError, match="odd"):
            key_hashes([b"T"], [unique("é")], fail)

    def test_topics_and_texts_of_unequal_number_are_a_bug(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            hash_keys([b"T"], [])
