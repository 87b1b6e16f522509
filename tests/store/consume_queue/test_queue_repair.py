"""Damage of older queue files, which opening does not examine."""

from collections.abc import Callable

import pytest
from tests.store.conftest import NOW, DataDir, draft, fill, read_bodies

from roquet.model.errors import StoreError
from roquet.store.consume_queue import queue_repair
from roquet.store.layout import FILLER_SIZE
from roquet.store.store import Store
from roquet.wire.records.record import ENTRY, decode_many

GARBAGE = bytes(range(256)) * 4
MINUS = ENTRY.pack(-5, 90, 1) * 50
RED = 112785


def name(start: int, topic: str = "T") -> str:
    return f"consumequeue/{topic}/0/{start * 20:020d}"


def spoil(store_dir: DataDir, at: int, data: bytes, start: int = 0) -> None:
    store_dir.content(name(start))[at : at + len(data)] = data


def shift(store_dir: DataDir) -> None:
    """One plausible entry that leads beside its record."""
    position, size, code = store_dir.entry("T", 0, 7)
    spoil(store_dir, 140, ENTRY.pack(position + 1, size, code))


def swap(store_dir: DataDir) -> None:
    """Two entries that lead to each other's records."""
    data = bytes(store_dir.content(name(0)))
    spoil(store_dir, 0, data[20:40] + data[:20])


DAMAGE: dict[str, Callable[[DataDir], None]] = {
    "zeros": lambda s: spoil(s, 0, bytes(1000)),
    "garbage": lambda s: spoil(s, 0, GARBAGE[:1000]),
    "negative positions": lambda s: spoil(s, 0, MINUS),
    "garbage at the head": lambda s: spoil(s, 0, GARBAGE[:300]),
    "garbage in the middle": lambda s: spoil(s, 333, GARBAGE[:300], 50),
    "garbage at the tail": lambda s: spoil(s, 900, GARBAGE[:100]),
    "another queue's": lambda s: spoil(s, 0, bytes(s.content(name(0, "U")))),
    "one entry": shift,
    "two entries": swap,
}


@pytest.fixture
def filled(store_dir: DataDir) -> DataDir:
    """A closed store with 120 messages in T and as many in U between them."""
    store = store_dir.open()
    for n in range(120):
        store.append(draft(b"%03d" % n), NOW + n)
        store.append(draft(b"other", "U"), NOW + n)
    store.close(NOW)
    return store_dir


def all_of(store: Store, read: str) -> list[bytes]:
    """The bodies of T, read by one of the read methods."""
    found: list[bytes] = []
    offset = 0
    while offset < 120:
        if read == "block":
            block = store.read_block("T", 0, offset, count_max=32, bytes_max=1 << 20)
            parts, offset = [memoryview(block.data)], block.next_offset
        else:
            wanted = frozenset((RED,)) if read == "by tag" else None
            part = store.read("T", 0, offset, wanted=wanted)
            parts, offset = part.parts, part.next_offset
        records = [record for part in parts for record in decode_many(part)]
        assert {record.topic for record in records} == {"T"}
        found += [record.body for record in records]
    return found


@pytest.mark.parametrize("read", ["whole", "by tag", "block"])
@pytest.mark.parametrize("what", DAMAGE)
def test_a_reader_of_damaged_entries_gets_every_message_of_the_log(
    filled: DataDir, caplog: pytest.LogCaptureFixture, what: str, read: str
) -> None:
    before = bytes(filled.content(name(0)))
    DAMAGE[what](filled)
    store = filled.open()
    assert store.bounds("T", 0) == (0, 120)
    assert all_of(store, read) == [b"%03d" % n for n in range(120)]
    assert "consume queue T/0: " in caplog.text
    assert "entries from offset" in caplog.text
    assert store.damage == []
    if read != "by tag":
        assert bytes(filled.content(name(0))) == before


@pytest.mark.parametrize("what", DAMAGE)
def test_a_scrub_repairs_queues_that_are_not_read(
    filled: DataDir, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    before = [bytes(filled.content(name(start))) for start in (0, 50, 100)]
    DAMAGE[what](filled)
    store = filled.open()
    while store.scrub(2000):
        pass
    assert [bytes(filled.content(name(start))) for start in (0, 50, 100)] == before
    assert "corrected from the log" in caplog.text
    assert store.damage == []


def test_a_scrub_finds_a_wrong_tag(filled: DataDir) -> None:
    position, size, code = filled.entry("T", 0, 7)
    spoil(filled, 140, ENTRY.pack(position, size, code + 1))
    store = filled.open()
    while store.scrub(2000):
        pass
    assert filled.entry("T", 0, 7) == (position, size, code)


def test_a_scrub_leaves_alone_when_a_delayed_message_is_due(
    store_dir: DataDir, store: Store
) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    store.append(draft(topic=topic, tag_code=NOW + 77, properties={"DELAY": "3"}), NOW)
    store.close(NOW)
    store = store_dir.open()
    while store.scrub(2000):
        pass
    assert store_dir.entry(topic, 0, 0)[2] == NOW + 77


def test_a_scrub_of_queues_that_are_right_changes_nothing_and_lets_them_go(
    filled: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_repair, "LOADS_MAX", 1)
    before = filled.snapshot()
    store = filled.open()
    steps = 1
    while store.scrub(1 << 20):
        steps += 1
    assert steps == 4  # one for each queue, one for the key index, and the rest
    assert list(store.queue_stats.ends()) == []
    store.close(NOW)
    after = filled.snapshot()
    for path in before:
        if path.parts[2] in ("commitlog", "consumequeue", "queue-ends"):
            assert after[path] == before[path], path


def test_a_scrub_passes_over_what_has_no_queue(store_dir: DataDir, store: Store) -> None:
    for topic in ("T", "gone"):
        store.append(draft(topic=topic, sys_flag=4 if topic == "T" else 0), NOW)
    store.append(draft(topic="removed"), NOW)
    store.append(draft(topic="stays"), NOW)
    store.delete_topic("gone")
    store.remove_queue("removed", 0)
    store.close(NOW)
    store = store_dir.open()
    store.append(draft(topic="gone"), NOW)
    while store.scrub(100):
        pass
    assert store.bounds("gone", 0) == (0, 1)
    assert store.bounds("removed", 0) == (0, 0)


def test_the_first_of_two_records_that_claim_an_offset_keeps_it(
    store_dir: DataDir, store: Store
) -> None:
    store.append(draft(b"first"), NOW)
    other = store.append(draft(b"second", "U"), NOW)
    store.close(NOW)
    record = store_dir.bytes_at(other.position, other.size)
    at = bytes(record).index(b"\x01U")
    record[at : at + 2] = b"\x01T"
    store = store_dir.open()
    while store.scrub(1000):
        pass
    assert read_bodies(store) == [b"first"]


def test_a_message_that_the_log_lost_is_reported_and_its_offset_stays(
    filled: DataDir,
) -> None:
    position, size, _ = filled.entry("T", 0, 7)
    filled.bytes_at(position, size)[:] = bytes(size)
    spoil(filled, 0, bytes(1000))
    store = filled.open()
    assert all_of(store, "whole") == [b"%03d" % n for n in range(120) if n != 7]
    assert filled.entry("T", 0, 7)[1] == FILLER_SIZE
    assert store.bounds("T", 0) == (0, 120)


def test_an_entry_that_may_be_right_stays_where_the_log_is_damaged(filled: DataDir) -> None:
    entry = filled.entry("T", 0, 7)
    filled.bytes_at(entry[0], entry[1])[:] = bytes(entry[1])
    store = filled.open()
    assert all_of(store, "whole") == [b"%03d" % n for n in range(120) if n != 7]
    assert filled.entry("T", 0, 7) == entry
    assert [(x.first, x.stop) for d in store.damage for x in d.lost] == [(7, 8)]


def test_a_reader_whose_repair_takes_long_is_asked_to_try_again(
    filled: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_repair, "WALK_BYTES", 5000)
    spoil(filled, 0, bytes(1000))
    store, refused = filled.open(), list[str]()
    while True:
        try:
            found = store.read("T", 0, 0)
            break
        except StoreError as error:
            refused.append(str(error))
    assert found.count == 32
    assert len(refused) > 2
    assert "consume queue T/0 is damaged near offset 0: it is being corrected" in refused[0]


def test_apache_queues_of_records_of_other_topics_are_not_repaired(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 5, topic="%LMQ%a")
    fill(store, 5, topic="T")
    store.close(NOW)
    light = store_dir.content(name(0, "%LMQ%a"))
    light[:100] = bytes(store_dir.content(name(0)))[:100]
    store_dir.files.remove(store_dir.path("queue-ends"))
    assert store_dir.open().read("%LMQ%a", 0, 0).count == 5


def test_queues_read_together_are_checked(filled: DataDir) -> None:
    DAMAGE["another queue's"](filled)
    store = filled.open()
    found = store.read_together("T", {0: 0})
    assert found is None or {r.topic for p in found.parts for r in decode_many(p)} == {"T"}
    assert filled.entry("T", 0, 0)[0] == 0


def test_an_entry_is_not_repaired_while_the_disk_is_full(
    filled: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(filled, 0, bytes(1000))
    store = filled.open()
    filled.files.capacity = 0
    filled.files.blocks.clear()
    while store.scrub(2000):
        pass
    assert "the disk is full" in caplog.text


def test_first_entries_of_a_queue_whose_records_are_gone_are_passed_over(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 140)
    store.close(NOW)
    store = store_dir.open()
    store.expire(NOW + 10 * 86_400_000, at_once=True)
    least, end = store.bounds("T", 0)
    assert 0 < least < end == 140
    assert store.read("T", 0, least).count == min(32, end - least)
    while store.scrub(2000):
        pass
    assert store.damage == []


def test_entries_without_records_are_no_damage(
    filled: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    before = all_of(filled.open_after_kill(), "whole")
    for at in (7, 8, 50):
        position = filled.entry("T", 0, at)[0] if at < 50 else 0
        data = ENTRY.pack(position, FILLER_SIZE, 0)
        spoil(filled, at % 50 * 20, data, at // 50 * 50)
    store = filled.open_after_kill()
    caplog.clear()
    assert all_of(store, "whole") == [body for n, body in enumerate(before) if n not in (7, 8, 50)]
    assert "damage" not in caplog.text


def test_entries_that_this_process_wrote_are_believed(filled: DataDir) -> None:
    store = filled.open()
    fill(store, 30)
    assert store.read_block("T", 0, 130, count_max=9, bytes_max=9999).next_offset == 139
    assert store.read("T", 0, 110).count == 32


def test_first_entries_without_records_are_no_damage(store_dir: DataDir, store: Store) -> None:
    fill(store, 60)
    store.close(NOW)
    spoil(store_dir, 0, ENTRY.pack(0, FILLER_SIZE, 0) * 50)
    store = store_dir.open()
    assert store.read("T", 0, 50).count == 10
    assert store.damage == []


def test_a_file_of_entries_without_records_is_no_damage(store_dir: DataDir, store: Store) -> None:
    fill(store, 160)
    store.close(NOW)
    position, _, _ = ENTRY.unpack_from(store_dir.content(name(50)))
    spoil(store_dir, 0, ENTRY.pack(position, FILLER_SIZE, 0) * 50, 50)
    store = store_dir.open()
    assert store.read("T", 0, 40, count_max=10).count == 10
    assert store.read("T", 0, 100).count == 32
    assert store.damage == []


def test_a_single_slow_entry_is_repaired_at_once(
    filled: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_repair, "WALK_BYTES", 1)
    shift(filled)
    assert len(all_of(filled.open(), "whole")) == 120


def test_a_record_that_claims_an_offset_which_its_queue_lacks_is_left_alone(
    filled: DataDir,
) -> None:
    position = filled.entry("T", 0, 7)[0]
    log = filled.content("commitlog/" + "0" * 20)
    log[position + 20 : position + 28] = (10**6).to_bytes(8, "big")
    store = filled.open()
    while store.scrub(2000):
        pass
    assert store.bounds("T", 0) == (0, 120)
    assert store.read("T", 0, 8).count == 32


def test_a_queue_of_an_apache_lite_topic_is_not_repaired(store_dir: DataDir) -> None:
    """Its entries lead to records of the topics to which these were sent."""
    store = store_dir.open()
    fill(store, 60)
    store.close(NOW)
    for start in (0, 50):
        store_dir.files.create(store_dir.path(name(start, "%LMQ%T")), 1000)
        store_dir.content(name(start, "%LMQ%T"))[:] = store_dir.content(name(start))
    before = store_dir.content(name(0, "%LMQ%T")).tobytes()
    store = store_dir.open()
    assert store.read("%LMQ%T", 0, 0).count == 32
    assert store_dir.content(name(0, "%LMQ%T")).tobytes() == before
    assert store.bounds("%LMQ%T", 0) == (0, 60)
