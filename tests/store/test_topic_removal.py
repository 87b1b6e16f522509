from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import NOW, StoreDirectory, draft, fill, read_bodies

from roquet.model.errors import StoreError, StoreFailed
from roquet.store.commit_log.log import CommitLog
from roquet.store.store import Store, StoreConfig


def test_queues_that_cannot_be_removed_end_writing_since_a_successor_would_find_them(
    store_dir: StoreDirectory, store: Store, monkeypatch: pytest.MonkeyPatch
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
    store_dir: StoreDirectory, store: Store
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
    store_dir: StoreDirectory, monkeypatch: pytest.MonkeyPatch
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
