"""Recovery step by step; test_store has the random walks."""

from random import Random

import pytest
from tests.store.conftest import NOW, DataDir, draft, fill, index_all, read_bodies

from roquet.model.errors import StoreError
from roquet.store.layout import StoreCheckpoint, pack_checkpoint, unpack_checkpoint
from roquet.store.store import Store
from roquet.wire.records.partial_decode import PartialRecord


def reads(store_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the records that a recovery examines."""
    from roquet.store.commit_log import log
    from roquet.wire.records.partial_decode import decode_partly

    seen = list[int]()

    def counting(
        view: memoryview, at: int, limit: int, position: int, check_crc: bool
    ) -> PartialRecord | None:
        seen.append(position)
        return decode_partly(view, at, limit, position, check_crc)

    monkeypatch.setattr(log, "decode_partly", counting)
    return seen


def test_a_recovery_reads_only_what_the_checkpoint_does_not_cover(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 100)
    store.dispatch()
    store.flush_all(NOW)
    appended = fill(store, 5)
    seen = reads(store_dir, monkeypatch)
    store_dir.open_after_kill()
    assert len(seen) < 20
    assert sum(position < appended[0].position for position in seen) <= 3


def test_a_closed_store_is_opened_without_reading_it(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 100)
    store.close(NOW)
    seen = reads(store_dir, monkeypatch)
    store_dir.open()
    assert len(seen) <= 5


def test_a_recovery_without_a_note_begins_like_apaches_broker(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(200):
        store.append(draft(b"%03d" % n), NOW + n * 1000)
    before = read_bodies(store)
    index_all(store)
    store.flush_all(NOW)
    safe_ms = NOW + 150_000
    page = pack_checkpoint(StoreCheckpoint(log_ms=safe_ms, queues_ms=safe_ms, index_ms=NOW + 10**9))
    store_dir.content("checkpoint")[:] = page
    seen = reads(store_dir, monkeypatch)
    store = store_dir.open_after_kill()
    assert read_bodies(store) == before
    assert min(p for p in seen if p % 8192) > 8192


@pytest.mark.parametrize("log_ms", [0, NOW + 10**9])
def test_no_content_of_an_apache_checkpoint_loses_a_message(
    store_dir: DataDir, store: Store, log_ms: int
) -> None:
    fill(store, 100)
    before = read_bodies(store)
    store_dir.files.create(store_dir.path("checkpoint"), 4096)
    page = pack_checkpoint(StoreCheckpoint(log_ms=log_ms, queues_ms=log_ms, flushed_position=77))
    store_dir.content("checkpoint")[:] = page
    assert read_bodies(store_dir.open_after_kill()) == before


def test_damage_before_durable_records_of_an_apache_log_is_no_torn_tail(
    store_dir: DataDir, store: Store
) -> None:
    appended = fill(store, 60)
    store_dir.files.create(store_dir.path("checkpoint"), 4096)
    page = pack_checkpoint(StoreCheckpoint(log_ms=NOW + 59, queues_ms=NOW + 59))
    store_dir.content("checkpoint")[:] = page
    store_dir.bytes_at(appended[20].position, 40)[:] = bytes(40)
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == (0, 60)
    assert len(read_bodies(store)) == 59
    assert [x.first for d in store.damage for x in d.lost] == [20]


def test_a_clean_apache_log_keeps_the_records_of_its_queues(
    store_dir: DataDir, store: Store
) -> None:
    appended = fill(store, 20)
    store.close(NOW)
    store_dir.files.remove(store_dir.path("checkpoint"))
    store_dir.bytes_at(appended[-1].position, 40)[:] = bytes(40)
    store = store_dir.open()
    assert store.bounds("T", 0) == (0, 20)
    assert store.end_position == appended[-1].position + appended[-1].size
    assert [x.first for d in store.damage for x in d.lost] == [19]
    assert len(read_bodies(store)) == 19


def test_the_last_message_of_a_queue_in_a_hole_keeps_its_offset(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 3)
    lost = store.append(draft(b"lost", "U"), NOW)
    fill(store, 3)
    other = store.append(draft(b"lost", "V"), NOW)
    store.flush_all(NOW)
    for place in (lost, other):  # the note's own record as well: the whole file is read again
        store_dir.bytes_at(place.position, 50)[:] = bytes(50)
    store = store_dir.open_after_kill()
    assert [store.bounds(topic, 0) for topic in "TUV"] == [(0, 6), (0, 1), (0, 1)]
    assert store.append(draft(b"next", "U"), NOW).queue_offset == 1
    assert read_bodies(store, "U") == [b"next"]
    assert sorted(x.topic for d in store.damage for x in d.lost) == ["U", "V"]


def test_a_log_that_lost_its_end_in_front_of_the_note_keeps_its_positions(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 10)
    end = store.end_position
    store.flush_all(NOW)
    store_dir.bytes_at(500, 8192 - 500)[:] = bytes(8192 - 500)
    store = store_dir.open_after_kill()
    assert store.end_position == end
    assert store.bounds("T", 0) == (0, 10)
    assert store.append(draft(), NOW).queue_offset == 10


def test_a_recovery_with_an_unreadable_note_begins_like_apaches_broker(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 100)
    store.flush_all(NOW)
    before = read_bodies(store)
    page = store_dir.content("checkpoint")
    page[1030] ^= 1
    assert unpack_checkpoint(bytes(page)).note is None
    assert read_bodies(store_dir.open_after_kill()) == before


def test_entries_left_of_a_lost_end_do_not_come_back(store_dir: DataDir) -> None:
    """Its position has been written again by then, by a message of another queue."""
    store = store_dir.open()
    fill(store, 2)
    store.flush_all(NOW)
    lost = store.append(draft(b"lost", "U"), NOW)
    store_dir.bytes_at(lost.position, lost.size)[:] = bytes(lost.size)
    stale = bytes(store_dir.content(f"consumequeue/U/0/{0:020d}"))
    store = store_dir.open_after_kill()
    fill(store, 4)
    store_dir.content(f"consumequeue/U/0/{0:020d}")[:] = stale
    store = store_dir.open_after_kill()
    assert store.bounds("U", 0) == (0, 0)
    assert len(read_bodies(store)) == 6


def test_a_torn_record_after_a_blank_leaves_the_blank_to_be_written_over(
    store_dir: DataDir, store: Store
) -> None:
    store.append(draft(b"x" * 6000), NOW)
    end = store.end_position
    store.flush_all(NOW)
    place = store.append(draft(b"y" * 3000), NOW)
    store_dir.bytes_at(place.position + 1000, 3000)[:] = bytes(3000)
    store = store_dir.open_after_kill()
    assert store.end_position in (end, place.position)
    store.append(draft(b"z"), NOW)
    assert [len(body) for body in read_bodies(store_dir.open_after_kill())] == [6000, 1]


def small_blank(store: Store) -> int:
    """Fill a file so that no record fits behind its last one; gives where that ends."""
    size = store.append(draft(b"x"), NOW).size - 1
    place = store.append(draft(b"x" * (8192 - 2 * size - 1 - 40)), NOW)
    end = place.position + place.size
    assert end == 8192 - 40
    return end


def test_a_blank_that_a_loss_of_power_took_is_written_again(store_dir: DataDir) -> None:
    """Apache's broker ends its log at zeros, and a replica could not cut its log there."""
    store = store_dir.open()
    store.flush_all(NOW)
    blank = small_blank(store)
    kept = store.append(draft(b"kept"), NOW)
    assert kept.position == 8192
    head = bytes(store_dir.bytes_at(blank, 8))
    store_dir.bytes_at(blank, 8)[:] = bytes(8)
    store = store_dir.open_after_kill()
    assert store.end_position == kept.position + kept.size
    assert read_bodies(store)[-1] == b"kept"
    assert store_dir.bytes_at(blank, 8) == head
    store.flush_all(NOW)
    store_dir.files = store_dir.files.after_power_loss(Random(0))
    store = store_dir.open()
    assert store_dir.bytes_at(blank, 8) == head
    store.raw.truncate(blank)
    assert store.end_position == blank


def test_a_lost_blank_at_the_durable_end_is_written_again(store_dir: DataDir, store: Store) -> None:
    blank = small_blank(store)
    lost = store.append(draft(b"damaged later"), NOW)
    store.flush_all(NOW)
    head = bytes(store_dir.bytes_at(blank, 8))
    store_dir.bytes_at(blank, 8)[:] = bytes(8)
    store_dir.bytes_at(lost.position, lost.size)[:] = bytes(lost.size)
    store_dir.files.remove(store_dir.path("queue-ends"))  # then the whole log is read
    store_dir.open_after_kill()
    assert store_dir.bytes_at(blank, 8) == head


def test_an_index_older_than_the_note_is_caught_up(store_dir: DataDir, store: Store) -> None:
    fill(store, 150)
    index_all(store)
    store.close(NOW)
    name = max(p.name for p in store_dir.files.contents if p.parent.name == "index")
    whole, short = store_dir.files.copy(), store_dir.files.copy()
    whole.remove(store_dir.path(f"index/{name}"))
    memoryview(short.contents[store_dir.path(f"index/{name}")])[39] = 2  # the next entry's number
    for files in (whole, short):
        store_dir.files = files
        assert len(store_dir.open().query("T", "U1", count_max=999).positions) == 150


def test_a_missing_next_file_of_the_log_is_logged_after_a_kill(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 10)
    store.flush_all(NOW)
    fill(store, 90)
    store_dir.files = store_dir.files.copy()
    newest = max(p for p in store_dir.files.contents if p.parent.name == "commitlog")
    store_dir.files.remove(newest)
    store = store_dir.open()
    assert f"leads on to {newest.name}, which is missing" in caplog.text
    lost = 100 - store.bounds("T", 0)[1]
    assert f"{lost} messages that consume queues led to are not in the log" in caplog.text
    caplog.clear()
    store_dir.open_after_kill()
    assert "missing" not in caplog.text


def test_queues_without_log_and_checkpoint_are_logged(store_dir: DataDir, store: Store) -> None:
    fill(store, 10)
    store.close(NOW)
    store_dir.files.remove(store_dir.path("commitlog"))
    store_dir.files.remove(store_dir.path("checkpoint"))
    with pytest.raises(StoreError, match="holds positions 0 to 0, but messages were kept up to"):
        store_dir.open()


def test_queues_end_where_the_log_says_when_nothing_else_knows(store_dir: DataDir) -> None:
    """Both what says where a queue ended and its end are damaged, and each start is killed."""
    store = store_dir.open()
    fill(store, 30)
    fill(store, 100, topic="U")
    store.close(NOW)
    store_dir.files.remove(store_dir.path("queue-ends"))
    store_dir.content(f"consumequeue/T/0/{0:020d}")[400:] = bytes(600)
    for _ in range(3):
        store = store_dir.open_after_kill()
        assert len(read_bodies(store)) == 30
        assert store.bounds("T", 0) == (0, 30)


@pytest.mark.parametrize("start", [0, 8192])
def test_a_zeroed_file_in_front_of_the_durable_end_is_damage_and_no_blank(
    store_dir: DataDir, store: Store, start: int
) -> None:
    for _ in range(120):
        store.append(draft(bytes(100)), NOW)
    store.close(NOW)
    store_dir.bytes_at(start, 8192)[:] = bytes(8192)
    store_dir.files.remove(store_dir.path("queue-ends"))  # then the whole log is read
    store = store_dir.open()
    assert [(d.start, d.stop) for d in store.damage] == [(start, start + 8192)]
    assert store.bounds("T", 0) == (0, 120)
    assert bytes(store_dir.bytes_at(start, 8)) == bytes(8)
    store.close(NOW)
    assert store_dir.open_after_kill().bounds("T", 0) == (0, 120)


def test_a_zeroed_file_in_front_of_the_durable_end_of_a_log_that_ends_with_it_is_damage(
    store_dir: DataDir, store: Store
) -> None:
    for _ in range(40):
        last = store.append(draft(bytes(100)), NOW)
    store.close(NOW)
    assert last.position > 8192
    store_dir.bytes_at(0, 8192)[:] = bytes(8192)
    store_dir.bytes_at(8192, 8192)[:] = bytes(8192)
    store_dir.files.remove(store_dir.path("queue-ends"))
    store = store_dir.open()
    assert [d.start for d in store.damage] == [0, 8192]
    assert store.bounds("T", 0) == (0, 40)
