"""Queue files that are damaged while no broker runs: the log is the truth."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.store.conftest import NOW, DataDir, draft, fill, read_bodies

from roquet.model.errors import StoreError
from roquet.store.check import check
from roquet.store.consume_queue.queue_check import is_last_entry_wrong
from roquet.store.consume_queue.queue_ends import unpack_ends
from roquet.store.layout import FILLER_SIZE
from roquet.store.store import Store
from roquet.wire.records.record import ENTRY

FILE_SIZE = 1000
"""A queue file of the small store: 50 entries."""


def name(start: int = 0, topic: str = "T") -> str:
    return f"consumequeue/{topic}/0/{start * 20:020d}"


def spoil(store_dir: DataDir, path: str, at: int, data: bytes) -> None:
    store_dir.content(path)[at : at + len(data)] = data


def lose(store_dir: DataDir, path: str) -> None:
    store_dir.files.remove(store_dir.path(path))


def cut(store_dir: DataDir, path: str, size: int) -> None:
    store_dir.files.contents[store_dir.path(path)] = bytes(store_dir.content(path))[:size]


GARBAGE = bytes(range(200, 256)) * 20
DAMAGE: dict[str, Callable[[DataDir], None]] = {
    "newest: garbage at its end": lambda s: spoil(s, name(100), 100, GARBAGE[:300]),
    "newest: garbage at its head": lambda s: spoil(s, name(100), 0, bytes(100)),
    "newest: all garbage": lambda s: spoil(s, name(100), 0, GARBAGE[:FILE_SIZE]),
    "newest: zeros": lambda s: spoil(s, name(100), 0, bytes(FILE_SIZE)),
    "newest: the last entry is gone": lambda s: spoil(s, name(100), 19 * 20, bytes(20)),
    "newest: entries behind the end": lambda s: spoil(s, name(100), 20 * 20, GARBAGE[:40]),
    "newest: missing": lambda s: lose(s, name(100)),
    "newest: no bytes": lambda s: cut(s, name(100), 0),
    "newest: half": lambda s: cut(s, name(100), 500),
    "newest: that of another queue": lambda s: spoil(
        s, name(100), 0, bytes(s.content(name(0, "U")))
    ),
    "middle: missing": lambda s: lose(s, name(50)),
    "middle: half": lambda s: cut(s, name(50), 500),
    "first: missing": lambda s: lose(s, name(0)),
    "first: no bytes": lambda s: cut(s, name(0), 0),
    "all: missing": lambda s: lose(s, "consumequeue/T/0"),
    "topic: missing": lambda s: lose(s, "consumequeue/T"),
    "every queue: missing": lambda s: lose(s, "consumequeue"),
    "ends: missing": lambda s: lose(s, "queue-ends"),
    "ends: no bytes": lambda s: cut(s, "queue-ends", 0),
    "ends: half": lambda s: cut(s, "queue-ends", 30),
}


@pytest.fixture(params=["closed", "killed"])
def filled(request: pytest.FixtureRequest, store_dir: DataDir) -> Callable[[], Store]:
    """A store with 120 messages in T, of which none may be lost; gives a function that opens it."""
    store = store_dir.open()
    for n in range(120):
        store.append(draft(b"%03d" % n), NOW + n)
        if n < 50:
            store.append(draft(b"other", "U"), NOW + n)
    store.flush_all(NOW)
    for n in range(5):
        store.append(draft(b"another", "V"), NOW + n)
    if request.param == "closed":
        store.close(NOW)
    else:
        store_dir.files = store_dir.files.copy()
    return store_dir.open


@pytest.mark.parametrize("what", DAMAGE)
def test_whatever_becomes_of_queue_files_no_message_is_lost_and_no_offset_given_twice(
    store_dir: DataDir,
    filled: Callable[[], Store],
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    DAMAGE[what](store_dir)
    store = filled()
    assert store.bounds("T", 0) == (0, 120)
    assert read_bodies(store) == [b"%03d" % n for n in range(120)]
    assert read_bodies(store, "U") == [b"other"] * 50
    assert store.append(draft(b"next"), NOW).queue_offset == 120
    if what != "ends: missing":  # older versions wrote none
        named = {"ends": "queue-ends is", "every queue": "/data/consumequeue is empty"}
        if what != "newest: garbage at its head":  # the end is right: a reader repairs the rest
            assert named.get(what.partition(":")[0], "consume queue T/0 is rebuilt") in (
                caplog.text
            )
    store.close(NOW)
    assert check(store_dir.directory, store_dir.config, files=store_dir.files).verdict == "whole"
    assert read_bodies(store_dir.open())[-1] == b"next"


def test_a_queue_without_damage_is_not_made_again(
    filled: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    filled()
    assert "again" not in caplog.text


def test_messages_that_the_log_lost_as_well_keep_their_offsets(
    store_dir: DataDir, filled: Callable[[], Store]
) -> None:
    last = store_dir.entry("T", 0, 10)[0]
    store_dir.bytes_at(last, 40)[:] = bytes(40)
    lose(store_dir, "consumequeue/T")
    store = filled()
    assert store.bounds("T", 0) == (0, 120)
    assert store_dir.entry("T", 0, 10)[1] == FILLER_SIZE
    assert store.append(draft(b"next"), NOW).queue_offset == 120


def test_a_deleted_topic_is_not_made_again(store_dir: DataDir, store: Store) -> None:
    fill(store, 3)
    store.flush_all(NOW)
    store.delete_topic("T")
    assert store_dir.open_after_kill().bounds("T", 0) == (0, 0)
    store = store_dir.open_after_kill()
    fill(store, 2)
    assert store_dir.open_after_kill().bounds("T", 0) == (0, 2)


def test_retention_may_delete_the_first_files_and_be_killed(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 400)
    store.flush_all(NOW)
    gone = store.expire(NOW + 10 * 86_400_000, at_once=True)
    assert any("consumequeue" in path for path in gone)
    before = store.bounds("T", 0)
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == before
    assert before[0] > 50


def test_missing_first_files_are_rebuilt_from_the_log(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 130)
    store.close(NOW)
    for start in (0, 50):
        lose(store_dir, name(start))
    assert store_dir.open().bounds("T", 0) == (0, 130)
    assert "T/0 is rebuilt from the log: its files in front of offset 100 are missing" in (
        caplog.text
    )


def test_many_damaged_queues_are_counted(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(30):
        store.append(draft(queue_id=n), NOW)
    store.close(NOW)
    store = store_dir.open()
    store.append(draft(topic="U"), NOW)
    store.close(NOW)
    lose(store_dir, "consumequeue/T")
    store = store_dir.open()
    assert [store.bounds("T", n) for n in range(30)] == [(0, 1)] * 30
    assert caplog.text.count("is rebuilt from the log") == 20
    assert "10 more consume queues are rebuilt" in caplog.text


def test_ends_that_are_older_than_the_checkpoint_are_not_believed(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 3)
    store.flush_all(NOW)
    old = store_dir.files.read(store_dir.path("queue-ends"))
    fill(store, 3)
    store.close(NOW)
    store_dir.files.replace(store_dir.path("queue-ends"), old)
    assert store_dir.open().bounds("T", 0) == (0, 6)
    assert "queue-ends is older than the checkpoint" in caplog.text


def test_ends_that_cannot_be_read_are_named(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    store.close(NOW)
    read = store_dir.files.read

    def refuse(path: Path) -> bytes:
        if path.name == "queue-ends":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(store_dir.files, "read", refuse)
    with pytest.raises(StoreError, match="queue-ends cannot be used: Permission denied"):
        store_dir.open()


def test_saved_ends_of_unused_queues_are_kept(store_dir: DataDir) -> None:
    for topic in "TU":
        store = store_dir.open()
        store.append(draft(b"x", topic), NOW)
        store.close(NOW)
    found = unpack_ends(store_dir.files.read(store_dir.path("queue-ends")))
    assert found is not None
    assert {key: end.end for key, end in found.ends.items()} == {("T", 0): 1, ("U", 0): 1}


@pytest.mark.parametrize(
    ("entry", "is_astray"),
    [
        ((-5, 100, 0), True),
        ((0, 10, 0), True),  # the record there is that of offset 0
        ((1, 100, 0), True),  # in the middle of a record: what began there was cut off
        ((0, FILLER_SIZE, 0), False),
    ],
)
def test_a_last_entry_of_another_record_is_noticed_without_saved_ends(
    store_dir: DataDir,
    store: Store,
    caplog: pytest.LogCaptureFixture,
    entry: tuple[int, ...],
    is_astray: bool,
) -> None:
    fill(store, 3)
    fill(store, 100, topic="U")
    store.close(NOW)
    lose(store_dir, "queue-ends")
    store_dir.content("checkpoint")[1024:1100] = bytes(76)
    spoil(store_dir, name(), 40, ENTRY.pack(*entry))
    store = store_dir.open()
    assert store.bounds("T", 0) == (0, 3)
    assert ("T/0 is rebuilt" in caplog.text) == is_astray


def test_a_last_entry_into_a_damaged_part_of_the_log_keeps_its_offset(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 3)
    fill(store, 100, topic="U")
    store.close(NOW)
    lose(store_dir, "queue-ends")
    store_dir.content("checkpoint")[1024:1100] = bytes(76)
    position, size, _ = store_dir.entry("T", 0, 2)
    store_dir.bytes_at(position, size)[:] = bytes(size)
    store = store_dir.open()
    assert store.append(draft(b"next"), NOW).queue_offset == 3
    assert "T/0 is rebuilt" not in caplog.text


def test_entries_of_a_cut_log_that_a_loss_of_power_brings_back_are_no_messages(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 40)
    fill(store, 3, topic="V")
    store.flush_all(NOW)
    old = bytes(store_dir.content(f"consumequeue/V/0/{0:020d}"))
    cut_at = store_dir.entry("V", 0, 0)[0]
    store.close(NOW)
    store = store_dir.open()
    store.raw.truncate(cut_at)
    for _ in range(40):
        store.append(draft(b"of another length", "U"), NOW)
    store.close(NOW)
    store_dir.content(f"consumequeue/V/0/{0:020d}")[:] = old
    store = store_dir.open_after_kill()
    assert store.bounds("V", 0) == (0, 0)
    assert store.bounds("U", 0) == (0, 40)


@pytest.mark.parametrize(
    ("topic", "entry", "is_astray"),
    [
        ("T", (950, 51, 0), True),
        ("T", (950, FILLER_SIZE, 0), False),
        ("T", (50, 51, 0), False),  # retention has deleted its message
        ("%LMQ%T", (950, 51, 0), False),  # records name the topic that they were sent to
    ],
)
def test_an_entry_after_the_end_of_the_log_is_a_fault(
    topic: str, entry: tuple[int, int, int], is_astray: bool
) -> None:
    log: Any = SimpleNamespace(begin=100, end=1000)
    queue: Any = SimpleNamespace(topic=topic, begin=0, end=3, entry=lambda _: entry)
    assert is_last_entry_wrong(log, queue) is is_astray


def test_a_queue_copied_from_elsewhere_is_a_fault(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 100)
    store.close(NOW)
    other = type(store_dir)()
    store = other.open()
    fill(store, 200, topic="U")
    store.close(NOW)
    path = store_dir.path(f"consumequeue/U/0/{0:020d}")
    store_dir.files.contents[path] = other.files.contents[path]
    store = store_dir.open()
    assert (store.bounds("T", 0), store.bounds("U", 0)) == ((0, 100), (0, 0))
    assert "U/0 is rebuilt from the log: its entries lead to no messages" in caplog.text
    fill(store, 1, topic="U")
    assert store.bounds("U", 0) == (0, 1)


def test_a_queue_that_ends_with_a_file_is_checked_in_both_files(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 50)
    store.close(NOW)
    store_dir.files.create(store_dir.path(name(50)), FILE_SIZE)
    assert store_dir.open().bounds("T", 0) == (0, 50)
    store_dir.open_after_kill().close(NOW)
    store_dir.files.create(store_dir.path(name(50)), FILE_SIZE)
    spoil(store_dir, name(50), 0, GARBAGE[:20])
    assert store_dir.open_after_kill().bounds("T", 0) == (0, 50)


def test_a_queue_whose_last_known_entry_is_damaged_is_made_again_after_a_kill(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(20):
        store.append(draft(b"%d" % n), NOW)
    store.flush_all(NOW)
    store.append(draft(b"after"), NOW)
    store_dir.files = store_dir.files.copy()
    spoil(store_dir, name(), 19 * 20, ENTRY.pack(7, 100, 0))
    store = store_dir.open()
    assert store.read("T", 0, 19).count == 2
    assert "T/0 is rebuilt from the log: its entry of offset 19 is damaged" in caplog.text


def test_counting_continues_at_the_known_end(store_dir: DataDir, store: Store) -> None:
    fill(store, 50)
    store.flush_all(NOW)
    fill(store, 70)
    store = store_dir.open_after_kill()
    assert store.bounds("T", 0) == (0, 120)
    store.close(NOW)
    spoil(store_dir, name(100), 0, bytes(40))
    assert store_dir.open().bounds("T", 0) == (0, 120)


def test_a_checkpoint_without_our_note_is_logged(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 5)
    store.close(NOW)
    store_dir.content("checkpoint")[1024:1100] = bytes(76)
    assert store_dir.open().bounds("T", 0) == (0, 5)
    assert "checkpoint is damaged, or Apache's broker has written it" in caplog.text


def test_a_log_that_lost_its_first_files_is_distinguished_from_an_expired_one(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 300)
    store.close(NOW)
    names = sorted(n for n in store_dir.files.list(store_dir.path("commitlog")) if n.isdigit())
    assert len(names) > 2
    lose(store_dir, f"commitlog/{names[0]}")
    store_dir.open().close(NOW)
    assert f"lacks its files from position 0 to {int(names[1])}" in caplog.text
    caplog.clear()
    store_dir.open().close(NOW)
    assert "lacks its files" not in caplog.text
