import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import NOW, DataDir, draft, fill, index_all, read_bodies

from roquet.model.errors import StoreError, StoreFailed, StoreFull
from roquet.rules.recovery import LostMessages
from roquet.rules.retention import HOUR_MS, DiskUsage, RetentionPolicy
from roquet.store.check import check
from roquet.store.commit_log.log import CommitLog
from roquet.store.retention import local_hour
from roquet.store.store import Store, StoreConfig

ROOMY = DiskUsage(100, 60)
FILLING = DiskUsage(100, 20)


def filled(store_dir: DataDir) -> Store:
    """Ten days with a log file each; the messages of queue U are in the first one."""
    store = store_dir.open()
    for day in range(10):
        for n in range(7):
            topic = "U" if day == 0 and n < 3 else "T"
            store.append(
                draft(b"x" * 1000, topic, properties={"KEYS": f"d{day}"}), NOW + day * 24 * HOUR_MS
            )
    index_all(store)
    store.flush_all(NOW)
    return store


def test_old_files_of_the_log_go_and_what_led_there(store_dir: DataDir) -> None:
    store = filled(store_dir)
    later = NOW + 9 * 24 * HOUR_MS + 60_000
    gone = store.expire(later, FILLING)
    # A file counts as old as the first record behind it: three days are kept, and one file more.
    assert [name for name in gone if "commitlog" in name] == [
        str(store_dir.path(f"commitlog/{n * 8192:020d}")) for n in range(6)
    ]
    assert store.begin_position == 6 * 8192
    least, end = store.bounds("T", 0)
    assert (least, end) == (39, 67)
    assert len(read_bodies(store)) == 28
    assert store.bounds("U", 0) == (3, 3)
    assert store.read("T", 0, 0).next_offset == 39
    assert store.query("T", "d1").records == []
    assert len(store.query("T", "d8").records) == 7
    assert store.append(draft(topic="U"), later).queue_offset == 3


def test_the_remaining_files_open_again_undamaged(store_dir: DataDir) -> None:
    store = filled(store_dir)
    store.expire(NOW + 9 * 24 * HOUR_MS, FILLING)
    before, bounds = read_bodies(store), store.bounds("T", 0)
    store = store_dir.open_after_kill()
    assert (read_bodies(store), store.bounds("T", 0), store.bounds("U", 0)) == (
        before,
        bounds,
        (3, 3),
    )
    store.close(NOW)
    assert check(store_dir.directory, store_dir.config, files=store_dir.files).verdict == "whole"


def test_queue_files_go_with_the_log(store_dir: DataDir, store: Store) -> None:
    for n in range(200):
        store.append(draft(b"x" * 100), NOW + n * HOUR_MS)
    store.close(NOW)
    store = store_dir.open()
    gone = store.expire(NOW + 200 * HOUR_MS, FILLING)
    assert [name for name in gone if "consumequeue" in name] == [
        str(store_dir.path(f"consumequeue/T/0/{n * 1000:020d}")) for n in range(2)
    ]
    assert store.bounds("T", 0)[1] == 200


def test_nothing_expires_at_another_hour_with_free_space(store_dir: DataDir) -> None:
    store = filled(store_dir)
    hours = [len(store.expire(NOW + (9 * 24 + hour) * HOUR_MS, ROOMY)) for hour in range(24)]
    assert sum(count > 0 for count in hours) == 1


def test_pressure_refuses_writes_only_when_deleting_did_not_help(store_dir: DataDir) -> None:
    store_dir.config = type(store_dir.config)(
        **{
            f: getattr(store_dir.config, f)
            for f in store_dir.config.__struct_fields__
            if f != "retention"
        },
        retention=RetentionPolicy(free_min=10),
    )
    store = filled(store_dir)
    assert store.expire(NOW, DiskUsage(100, 5)) != []
    assert store.append(draft(), NOW).queue_offset == 67
    store.expire(NOW, DiskUsage(100, 5))
    assert store.watch_disk(DiskUsage(100, 5))


def test_old_files_are_deleted_at_any_hour_on_request(store_dir: DataDir) -> None:
    store = filled(store_dir)
    later = NOW + 9 * 24 * HOUR_MS + 60_000
    store.set_retention(RetentionPolicy(delete_hour=(local_hour(later) + 1) % 24))
    assert store.expire(later, ROOMY) == []
    assert store.expire(later, ROOMY, at_once=True) != []
    assert store.begin_position == 6 * 8192
    assert store.expire(later, ROOMY, at_once=True) == []


def test_a_changed_retention_is_used_by_the_next_expiration(store_dir: DataDir) -> None:
    store = filled(store_dir)
    later = NOW + 9 * 24 * HOUR_MS + 60_000
    store.set_retention(RetentionPolicy(reserved_ms=30 * 24 * HOUR_MS))
    assert store.expire(later, FILLING) == []
    store.set_retention(RetentionPolicy(reserved_ms=HOUR_MS))
    assert store.retention == RetentionPolicy(reserved_ms=HOUR_MS)
    store.expire(later, FILLING)
    assert store.begin_position == 8 * 8192


def test_empty_queues_removed_from_the_settings_are_deleted(store_dir: DataDir) -> None:
    store = filled(store_dir)
    store.append(draft(topic="U", queue_id=1), NOW + 9 * 24 * HOUR_MS)
    store.expire(NOW + 9 * 24 * HOUR_MS + 60_000, FILLING)
    before = read_bodies(store)
    assert store.expired_queues(lambda _topic, _queue: False) == []
    assert store.bounds("U", 0) == (3, 3)
    assert store.expired_queues(lambda _topic, _queue: True) == [("U", 0)]
    store.remove_queue("U", 0)
    store.trim_queue("T", 0)
    assert (store.topics(), store.queue_ids("U")) == (["T", "U"], [1])
    assert (read_bodies(store), len(read_bodies(store, "U", 1))) == (before, 1)
    store.flush_all(NOW)
    store = store_dir.open_after_kill()
    assert (read_bodies(store), store.bounds("U", 0)) == (before, (0, 0))


def test_a_file_is_not_old_because_the_clock_was_set_back_as_the_next_one_began(
    store: Store,
) -> None:
    for n in range(30):
        is_first_of_its_file = n in {7, 14, 21}
        back_ms = 30 * 24 * HOUR_MS if is_first_of_its_file else 0
        store.append(draft(b"x" * 1000), NOW - back_ms)
    assert store.expire(NOW + HOUR_MS, FILLING) == []


def test_nothing_after_the_last_checkpoint_expires(store_dir: DataDir) -> None:
    """A start after a kill reads the log from the checkpoint: it would refuse the rest."""
    store = store_dir.open()
    for n in range(40):
        store.append(draft(b"x" * 1000), NOW + n)
        if n == 10:
            store.flush_all(NOW)
    assert store.expire(NOW + 10**12, at_once=True) != []
    assert store.begin_position == 8192
    assert store.expire(NOW + 10**12, at_once=True) == []
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0)[1] == 40
    store.flush_all(NOW)
    assert store.expire(NOW + 10**12, at_once=True) != []


def test_expired_files_are_distinguished_from_lost_ones_after_a_kill(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(store_dir)
    store.expire(NOW + 9 * 24 * HOUR_MS, FILLING)
    begin = store.begin_position
    store = store_dir.open_after_kill()
    assert "lacks its files" not in caplog.text
    store_dir.files = store_dir.files.copy()
    store_dir.files.remove(store_dir.path(f"commitlog/{begin:020d}"))
    store_dir.open()
    said = f"lacks its files from position {begin} to {begin + 8192}, which retention did not"
    assert caplog.text.count(said) == 1


def test_a_full_disk_does_not_keep_retention_from_its_work(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store_dir).close(NOW)
    store = store_dir.open()

    def refuse(*_: object) -> None:
        raise StoreFull("full")

    monkeypatch.setattr(store_dir.files, "allocate", refuse)
    assert store.expire(NOW + 10**12, at_once=True) != []


class Unread:
    """Unread messages from a position on, and what the store says of deletions."""

    def __init__(self, position: int | None) -> None:
        self.position = position
        self.asked: list[int] = []
        self.told: list[tuple[list[LostMessages], int, DiskUsage | None]] = []

    def first_position(self, file_end: int, usage: DiskUsage) -> int | None:
        self.asked.append(file_end)
        return self.position

    def deleting(
        self, messages: Sequence[LostMessages], begin: int, forced_by: DiskUsage | None
    ) -> None:
        self.told.append((list(messages), begin, forced_by))


PRESSING = DiskUsage(100, 12)


def test_a_pressed_disk_keeps_unread_messages_unless_the_policy_gives_them_up(
    store_dir: DataDir,
) -> None:
    store = filled(store_dir)
    store.unread = unread = Unread(2 * 8192 + 100)
    assert store.expire(NOW, PRESSING) != []
    assert store.begin_position == 2 * 8192
    assert store.expire(NOW, PRESSING) == []
    assert unread.asked == [8192, 3 * 8192]
    assert unread.told == [
        ([LostMessages("T", 0, 0, 11), LostMessages("U", 0, 0, 3)], 2 * 8192, PRESSING)
    ]
    store.set_retention(RetentionPolicy(force_unread=True))
    assert store.expire(NOW, PRESSING) != []
    assert store.begin_position == 9 * 8192


def test_of_old_files_nobody_is_asked_and_they_are_told(store_dir: DataDir) -> None:
    store = filled(store_dir)
    store.unread = unread = Unread(0)
    store.expire(NOW + 9 * 24 * HOUR_MS + 60_000, FILLING)
    assert unread.asked == []
    assert [(begin, forced_by) for _, begin, forced_by in unread.told] == [(6 * 8192, None)]


def test_counting_what_goes_leaves_no_queue_loaded(store_dir: DataDir) -> None:
    filled(store_dir).close(NOW)
    store, parts = store_dir.open_parts()
    store.unread = Unread(None)
    loaded = set(parts.queues.loaded)
    store.expire(NOW + 9 * 24 * HOUR_MS, FILLING)
    assert set(parts.queues.loaded) == loaded


def test_room_is_logged_at_the_level_of_the_refusal_which_names_the_setting_that_decided(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    store.watch_disk(DiskUsage(100, 5))
    store.watch_disk(DiskUsage(100, 50))
    store.set_retention(RetentionPolicy(free_min=10))
    store.watch_disk(DiskUsage(100, 5))
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    full, room, floor = caplog.messages
    assert "10 bytes are wanted (refuse_ratio)" in full
    assert room == "there is room on the disk again: writes are accepted"
    assert "10 bytes are wanted (free_min)" in floor


def test_queues_that_cannot_be_removed_end_writing_since_a_successor_would_find_them(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    fill(store, 3, topic="U")

    def failing(_: Path, *_target: Path) -> None:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr(store_dir.files, "move", failing)
        patch.setattr(store_dir.files, "remove", failing)
        with pytest.raises(StoreFailed, match="queues of topic U could not be removed"):
            store.delete_topic("U")
    with pytest.raises(StoreFailed):
        fill(store, 1, topic="U")
    store.close(NOW)
    store = store_dir.open_after_kill()
    assert store.bounds("U", 0) == (0, 0)
    assert len(read_bodies(store)) == 3


def test_a_topic_is_deleted_where_its_files_cannot_be_put_away(tmp_path: Path) -> None:
    (tmp_path / "consumequeue-removed").write_bytes(b"in the way")
    store = Store.open(tmp_path, StoreConfig(), now_ms=NOW, pid=7)
    store.append(draft(), NOW)
    store.delete_topic("T")
    assert not (tmp_path / "consumequeue" / "T").exists()
    store.append(draft(), NOW)
    assert store.bounds("T", 0) == (0, 1)
    store.close(NOW)


def test_a_deleted_topic_is_gone_and_may_come_again(store: Store) -> None:
    fill(store, 3)
    store.delete_topic("T")
    assert (store.topics(), store.bounds("T", 0)) == ([], (0, 0))
    fill(store, 2)
    assert len(read_bodies(store)) == 2


def test_one_queue_is_removed_and_the_others_of_its_topic_stay(store: Store) -> None:
    fill(store, 2, queue_id=0)
    fill(store, 3, queue_id=1)
    store.remove_queue("T", 0)
    assert (store.queue_ids("T"), store.bounds("T", 1)) == ([1], (0, 3))


def test_a_topic_deleted_up_to_a_position_keeps_what_is_behind_it(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 3)
    fill(store, 2, topic="U")
    position = store.end_position
    fill(store, 2)
    fill(store, 1, topic="U")
    store.delete_topic_before("T", position)
    assert store.bounds("T", 0) == (3, 5)
    assert len(read_bodies(store)) == 2
    assert store.bounds("U", 0) == (0, 3)
    assert store.deleted_topics == {"T": position}
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == (3, 5)


def test_a_topic_deleted_ahead_of_the_log_has_no_queues(store: Store) -> None:
    fill(store, 3)
    store.delete_topic_before("T", store.end_position + 1000)
    store.delete_topic_before("never", store.end_position)
    assert (store.topics(), store.deleted_before("never")) == ([], store.end_position)


def test_a_topic_is_deleted_up_to_a_position_once(store: Store) -> None:
    fill(store, 3)
    position = store.end_position
    store.delete_topic_before("T", position)
    fill(store, 1)
    store.delete_topic_before("T", position)
    store.delete_topic_before("T", position - 1)
    assert store.bounds("T", 0) == (0, 1)
    assert store.deleted_topics == {"T": position}


def test_the_log_is_read_only_for_topics_with_messages_behind_the_position(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    walk = CommitLog.walk

    def counted(log: CommitLog, start: int, *others: int, check_crc: bool) -> Iterator[Any]:
        read.append(start)
        return walk(log, start, *others, check_crc=check_crc)

    monkeypatch.setattr(CommitLog, "walk", counted)
    store = store_dir.open()
    fill(store, 3)
    position = store.end_position
    fill(store, 1, topic="U")
    read.clear()
    store.delete_topic_before("never", 1)
    store.delete_topic_before("T", position)
    assert (read, store.topics()) == ([], ["U"])
    position = store.end_position
    fill(store, 1, topic="U")
    store.delete_topic_before("U", position)
    assert (read, store.bounds("U", 0)) == ([position], (1, 2))
