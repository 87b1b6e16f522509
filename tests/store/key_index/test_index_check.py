"""A key index damaged in every way: messages are found by their keys again."""

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest
from tests.store.conftest import NOW, DataDir, draft, index_all

from roquet.store.key_index import index_check
from roquet.store.layout import INDEX_HEAD, index_name
from roquet.store.store import Store

pytestmark = pytest.mark.usefixtures("form")

COUNT = 330
ENTRIES_AT = INDEX_HEAD.size + 20 * 4

Opened = TypeVar("Opened")

Damage = Callable[[memoryview], object]


def closed(store_dir: DataDir) -> list[str]:
    """A store with four index files; gives their names."""
    store = store_dir.open()
    for n in range(COUNT):
        keys = {"KEYS": f"k{n} all"} if n % 3 else {"FLAG": "none"}
        store.append(draft(properties=keys, tag_code=0), NOW + n * 1_000)
    index_all(store)
    store.close(NOW)
    names = sorted(p.name for p in store_dir.files.contents if p.parent.name == "index")
    assert len(names) == 5
    return names


def lost(store: Store) -> list[int]:
    """Messages that a query by key and store time does not find."""
    every = len(store.query("T", "all", count_max=999).positions)
    assert every == sum(n % 3 > 0 for n in range(COUNT)), every
    return [
        n for n in range(COUNT)
        if n % 3 and len(store.query("T", f"k{n}", begin_ms=NOW + n * 1_000).records) != 1
    ]  # fmt: skip


def opened_as_large(open_store: Callable[[], Opened]) -> Opened:
    """A store whose log counts as too large to have its keys compared by the first query."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roquet.store.store.KEY_CHECK_BYTES", 0)
        return open_store()


def scrubbed(store_dir: DataDir) -> Store:
    """A store whose index was compared by the scrub, not by a query."""
    store = opened_as_large(store_dir.open)
    while store.scrub(3_000):
        pass
    index_all(store)
    return store


def garbage(start: int, size: int) -> Damage:
    def damage(view: memoryview) -> None:
        view[start : start + size] = Random(start).randbytes(size)

    return damage


def shifted(view: memoryview) -> None:
    """The times of all entries, and the file's, by an hour."""
    begin_ms, end_ms, *others = INDEX_HEAD.unpack_from(view)
    INDEX_HEAD.pack_into(view, 0, begin_ms + 3_600_000, end_ms, *others)


DAMAGE: dict[str, Damage] = {
    "slots": garbage(INDEX_HEAD.size, 80),
    "no slots": lambda view: view[INDEX_HEAD.size : ENTRIES_AT].__setitem__(slice(80), bytes(80)),
    "one slot": garbage(INDEX_HEAD.size + 4 * 7, 4),
    "first entry": garbage(ENTRIES_AT + 20, 20),
    "an entry's position": garbage(ENTRIES_AT + 5 * 20 + 4, 8),
    "an entry's time": garbage(ENTRIES_AT + 5 * 20 + 12, 4),
    "an entry's chain": garbage(ENTRIES_AT + 50 * 20 + 16, 4),
    "last entry": garbage(ENTRIES_AT + 98 * 20, 40),
    "many entries": garbage(ENTRIES_AT + 600, 800),
    "no entries": lambda view: view[ENTRIES_AT:].__setitem__(slice(2_000), bytes(2_000)),
    "times": shifted,
    "where it ends": garbage(30, 2),
}


@pytest.mark.parametrize("number", [0, 2, -1])
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_index_file_loses_no_key(store_dir: DataDir, number: int, what: str) -> None:
    names = closed(store_dir)
    DAMAGE[what](store_dir.content(f"index/{names[number]}"))
    damaged = store_dir.files.copy()
    assert lost(scrubbed(store_dir)) == []
    store_dir.files = damaged
    assert lost(store_dir.open()) == []


@pytest.mark.parametrize("number", [0, 1, 3, -1])
def test_a_missing_index_file_loses_no_key(store_dir: DataDir, number: int) -> None:
    store_dir.files.remove(store_dir.path(f"index/{closed(store_dir)[number]}"))
    missing = store_dir.files.copy()
    assert lost(scrubbed(store_dir)) == []
    store_dir.files = missing
    assert lost(store_dir.open()) == []


def test_files_that_changed_places_lose_no_key(store_dir: DataDir) -> None:
    names = closed(store_dir)
    for one, other in ((0, 1), (1, -1)):
        paths = [store_dir.path(f"index/{names[number]}") for number in (one, other)]
        contents = store_dir.files.contents
        contents[paths[0]], contents[paths[1]] = contents[paths[1]], contents[paths[0]]
        store_dir.files = store_dir.files.copy()
        assert lost(scrubbed(store_dir)) == []
        store_dir.files = store_dir.files.copy()


def test_a_kill_while_the_index_is_made_again_loses_no_key(store_dir: DataDir) -> None:
    names = closed(store_dir)
    garbage(ENTRIES_AT + 100, 100)(store_dir.content(f"index/{names[0]}"))
    store = opened_as_large(store_dir.open)
    while store.scrub(3_000):
        pass
    for pieces in range(1, 9):
        store = opened_as_large(store_dir.open_after_kill)
        for _ in range(pieces):
            store.dispatch(20)
        if pieces % 3 == 0:
            store.flush_all(NOW)
    index_all(store)
    assert lost(store) == []


def test_an_undamaged_index_is_not_changed(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    closed(store_dir)
    before = {p: bytes(c) for p, c in store_dir.files.contents.items() if p.parent.name == "index"}
    store = scrubbed(store_dir)
    assert lost(store) == []
    assert "damaged" not in caplog.text
    for path, content in before.items():
        assert bytes(store_dir.files.contents[path]) == content


@pytest.mark.parametrize("budget", [1, 7])
def test_a_check_continues_where_it_stopped(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    names = closed(store_dir)
    garbage(ENTRIES_AT + 20 * 60, 20)(store_dir.content(f"index/{names[2]}"))
    monkeypatch.setattr(index_check, "ENTRIES_MAX", budget)
    monkeypatch.setattr(index_check.IndexCheck.resume, "__defaults__", (budget,))
    monkeypatch.setattr(index_check.IndexCheck.finish, "__defaults__", (budget,))
    whole = store_dir.files.copy()
    assert lost(scrubbed(store_dir)) == []
    store_dir.files = whole
    assert lost(store_dir.open()) == []


def test_records_indexed_during_the_check_are_in_the_newest_file(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    closed(store_dir)
    store = opened_as_large(store_dir.open)
    n = 0
    while store.scrub(3_000):
        store.append(draft(properties={"KEYS": f"new{n}"}, tag_code=0), NOW + n)
        store.dispatch()
        n += 1
    assert "damaged" not in caplog.text
    assert lost(store) == []


def test_files_may_expire_during_a_check(store_dir: DataDir) -> None:
    closed(store_dir)
    store, opened = opened_as_large(store_dir.open_parts)
    for _ in range(3):
        store.scrub(3_000)
    assert store.expire(NOW + 10**12, at_once=True)
    while store.scrub(3_000):
        pass
    kept = store.bounds("T", 0)[0]
    assert len(opened.index.files) < 5
    assert all(store.query("T", f"k{n}").records for n in range(kept, COUNT) if n % 3)


def test_an_index_of_another_time_or_store_is_rebuilt(store_dir: DataDir) -> None:
    """Files of a backup, of another store, and none at all."""
    store = store_dir.open()
    for n in range(40):
        store.append(draft(properties={"KEYS": f"old{n}"}, tag_code=0), NOW + n)
    store.close(NOW)
    old = {p: c for p, c in store_dir.files.copy().contents.items() if p.parent.name == "index"}
    fresh = type(store_dir)()
    names = closed(fresh)
    for name in names:
        fresh.files.remove(fresh.path(f"index/{name}"))
    none = fresh.files.copy()
    fresh.files.contents |= old
    assert lost(scrubbed(fresh)) == []
    fresh.files = none
    assert lost(scrubbed(fresh)) == []


def test_an_index_that_ends_after_the_log_is_rebuilt(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    names = closed(store_dir)
    view = store_dir.content(f"index/{names[1]}")
    view[24:32] = (1 << 40).to_bytes(8, "big")
    assert lost(scrubbed(store_dir)) == []
    assert "it ends behind the log" in caplog.text


def test_an_empty_index_of_a_log_without_keys_is_whole(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(1_200):
        store.append(draft(b"", properties={}, tag_code=0), NOW + n)
    store.close(NOW)
    store = scrubbed(store_dir)
    assert "index" not in caplog.text
    store.append(draft(properties={"KEYS": "k"}), NOW)
    store.dispatch()
    assert len(store.query("T", "k").records) == 1


def test_records_that_cannot_be_found_by_a_key_are_not_missed(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolled back record, and one whose keys cannot be indexed."""
    store = store_dir.open()
    for n in range(3):
        store.append(draft(properties={"KEYS": f"k{n}"}, sys_flag=12 if n == 1 else 0), NOW)
    store.dispatch()
    store.close(NOW)
    monkeypatch.setattr(index_check, "hash_keys", lambda *_: 1 / 0)
    store = scrubbed(store_dir)
    monkeypatch.undo()
    assert [len(store.query("T", f"k{n}").positions) for n in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("count", [20, 1_100])
def test_keys_after_messages_without_keys_are_found(
    store_dir: DataDir, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A few records are examined when the store opens, very many by the scrub."""
    store = store_dir.open()
    for n in range(count + 1):
        keys = {"KEYS": "k"} if n in (0, count) else {}
        store.append(draft(b"", properties=keys, tag_code=0), NOW + n)
    index_all(store)
    store.close(NOW)
    store, opened = store_dir.open_parts()
    newest = opened.index.files[-1]
    assert newest.rewind(2)
    store.close(NOW)
    store = scrubbed(store_dir)
    assert ("lacks records" in caplog.text) == (count > 1_000)
    assert len(store.query("T", "k").positions) == 2


def test_an_index_may_lead_in_front_of_the_log(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention keeps the newest file, and later messages have no keys."""
    store = store_dir.open()
    store.append(draft(properties={"KEYS": "k"}, tag_code=0), NOW)
    for _ in range(200):
        store.append(draft(properties={}, tag_code=0), NOW)
    index_all(store)
    store.flush_all(NOW)
    assert store.expire(NOW + 10**12, at_once=True)
    store.close(NOW)
    scrubbed(store_dir)
    assert "index" not in caplog.text


def test_an_index_file_that_was_made_and_never_filled_is_whole(
    store_dir: DataDir, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(draft(properties={}, tag_code=0), NOW)
    store.close(NOW)
    store, opened = store_dir.open_parts()
    store.close(NOW)
    empty = store_dir.path(f"index/{index_name(NOW)}")
    store_dir.files.create(empty, opened.index.file_size)
    store = scrubbed(store_dir)
    assert "index" not in caplog.text
