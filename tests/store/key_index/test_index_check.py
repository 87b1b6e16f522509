"""The key index damaged in every way: what was found by its keys is found again."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest

from roquet.store.key_index import index_check
from roquet.store.layout import INDEX_HEAD
from roquet.store.store import Store

if TYPE_CHECKING:
    from tests.store.conftest import MakeDraft, Shelf

NOW = 1_700_000_000_000
COUNT = 330
ENTRIES_AT = INDEX_HEAD.size + 20 * 4

Damage = Callable[[memoryview], object]


def closed(shelf: "Shelf", draft: "MakeDraft") -> list[str]:
    """A store with four index files; gives their names."""
    store = shelf.open()
    for n in range(COUNT):
        keys = {"KEYS": f"k{n} all"} if n % 3 else {"FLAG": "none"}
        store.append(draft(properties=keys, tag_code=0), NOW + n * 1_000)
    while store.dispatch():
        pass
    store.close(NOW)
    names = sorted(p.name for p in shelf.files.contents if p.parent.name == "index")
    assert len(names) == 5
    return names


def lost(store: Store) -> list[int]:
    """Messages that are not found by their keys, in the time in which they were stored."""
    every = len(store.query("T", "all", count_max=999).positions)
    assert every == sum(n % 3 > 0 for n in range(COUNT)), every
    return [
        n for n in range(COUNT)
        if n % 3 and len(store.query("T", f"k{n}", begin_ms=NOW + n * 1_000).records) != 1
    ]  # fmt: skip


def scrubbed(shelf: "Shelf") -> Store:
    """A store whose index was compared by the scrub and not because it was asked for."""
    store = shelf.open()
    store._keys_to_check = False
    while store.scrub(3_000):
        pass
    while store.dispatch():
        pass
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
def test_a_damaged_index_file_loses_no_key(
    shelf: "Shelf", draft: "MakeDraft", number: int, what: str
) -> None:
    names = closed(shelf, draft)
    DAMAGE[what](shelf.content(f"index/{names[number]}"))
    damaged = shelf.files.copy()
    assert lost(scrubbed(shelf)) == []
    shelf.files = damaged
    assert lost(shelf.open()) == []


@pytest.mark.parametrize("number", [0, 1, 3, -1])
def test_a_missing_index_file_loses_no_key(shelf: "Shelf", draft: "MakeDraft", number: int) -> None:
    shelf.files.remove(shelf.path(f"index/{closed(shelf, draft)[number]}"))
    missing = shelf.files.copy()
    assert lost(scrubbed(shelf)) == []
    shelf.files = missing
    assert lost(shelf.open()) == []


def test_files_that_changed_places_lose_no_key(shelf: "Shelf", draft: "MakeDraft") -> None:
    names = closed(shelf, draft)
    for one, other in ((0, 1), (1, -1)):
        paths = [shelf.path(f"index/{names[number]}") for number in (one, other)]
        contents = shelf.files.contents
        contents[paths[0]], contents[paths[1]] = contents[paths[1]], contents[paths[0]]
        shelf.files = shelf.files.copy()
        assert lost(scrubbed(shelf)) == []
        shelf.files = shelf.files.copy()


def test_a_kill_while_the_index_is_made_again_loses_no_key(
    shelf: "Shelf", draft: "MakeDraft"
) -> None:
    names = closed(shelf, draft)
    garbage(ENTRIES_AT + 100, 100)(shelf.content(f"index/{names[0]}"))
    store = shelf.open()
    store._keys_to_check = False
    while store.scrub(3_000):
        pass
    for pieces in range(1, 9):
        store = shelf.open_after_kill()
        store._keys_to_check = False
        for _ in range(pieces):
            store.dispatch(20)
        if pieces % 3 == 0:
            store.flush_all(NOW)
    while store.dispatch():
        pass
    assert lost(store) == []


def test_a_whole_index_stays_as_it_is(
    shelf: "Shelf", draft: "MakeDraft", caplog: pytest.LogCaptureFixture
) -> None:
    closed(shelf, draft)
    before = {p: bytes(c) for p, c in shelf.files.contents.items() if p.parent.name == "index"}
    store = scrubbed(shelf)
    assert lost(store) == []
    assert "damaged" not in caplog.text
    for path, content in before.items():
        assert bytes(shelf.files.contents[path]) == content


@pytest.mark.parametrize("budget", [1, 7])
def test_it_goes_on_where_it_stopped(
    shelf: "Shelf", draft: "MakeDraft", monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    names = closed(shelf, draft)
    garbage(ENTRIES_AT + 20 * 60, 20)(shelf.content(f"index/{names[2]}"))
    monkeypatch.setattr(index_check, "ENTRIES_MAX", budget)
    monkeypatch.setattr(index_check.IndexCheck.resume, "__defaults__", (budget,))
    monkeypatch.setattr(index_check.IndexCheck.finish, "__defaults__", (budget,))
    whole = shelf.files.copy()
    assert lost(scrubbed(shelf)) == []
    shelf.files = whole
    assert lost(shelf.open()) == []


def test_what_came_meanwhile_is_part_of_the_newest_file(
    shelf: "Shelf", draft: "MakeDraft", caplog: pytest.LogCaptureFixture
) -> None:
    closed(shelf, draft)
    store = shelf.open()
    store._keys_to_check = False
    n = 0
    while store.scrub(3_000):
        store.append(draft(properties={"KEYS": f"new{n}"}, tag_code=0), NOW + n)
        store.dispatch()
        n += 1
    assert "damaged" not in caplog.text
    assert lost(store) == []


def test_retention_takes_files_under_its_hands(shelf: "Shelf", draft: "MakeDraft") -> None:
    closed(shelf, draft)
    store = shelf.open()
    store._keys_to_check = False
    for _ in range(3):
        store.scrub(3_000)
    assert store.expire(NOW + 10**12, at_once=True)
    while store.scrub(3_000):
        pass
    kept = store.bounds("T", 0)[0]
    assert len(store._index.files) < 5
    assert all(store.query("T", f"k{n}").records for n in range(kept, COUNT) if n % 3)


def test_an_index_of_an_earlier_day_is_made_again(shelf: "Shelf", draft: "MakeDraft") -> None:
    """Files of a backup, of another store, and none at all."""
    store = shelf.open()
    for n in range(40):
        store.append(draft(properties={"KEYS": f"old{n}"}, tag_code=0), NOW + n)
    store.close(NOW)
    old = {p: c for p, c in shelf.files.copy().contents.items() if p.parent.name == "index"}
    fresh = type(shelf)()
    names = closed(fresh, draft)
    for name in names:
        fresh.files.remove(fresh.path(f"index/{name}"))
    none = fresh.files.copy()
    fresh.files.contents |= old
    assert lost(scrubbed(fresh)) == []
    fresh.files = none
    assert lost(scrubbed(fresh)) == []


def test_an_index_that_leads_behind_the_log_is_made_again(
    shelf: "Shelf", draft: "MakeDraft", caplog: pytest.LogCaptureFixture
) -> None:
    names = closed(shelf, draft)
    view = shelf.content(f"index/{names[1]}")
    view[24:32] = (1 << 40).to_bytes(8, "big")
    assert lost(scrubbed(shelf)) == []
    assert "it ends behind the log" in caplog.text


def test_an_empty_index_of_a_log_without_keys_is_whole(
    shelf: "Shelf", draft: "MakeDraft", caplog: pytest.LogCaptureFixture
) -> None:
    store = shelf.open()
    for n in range(1_200):
        store.append(draft(b"", properties={}, tag_code=0), NOW + n)
    store.close(NOW)
    store = scrubbed(shelf)
    assert "index" not in caplog.text
    store.append(draft(properties={"KEYS": "k"}), NOW)
    store.dispatch()
    assert len(store.query("T", "k").records) == 1


def test_records_that_cannot_be_found_by_a_key_are_not_missed(
    shelf: "Shelf", draft: "MakeDraft", monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was rolled back, and one whose keys are refused: it was set aside."""
    store = shelf.open()
    for n in range(3):
        store.append(draft(properties={"KEYS": f"k{n}"}, sys_flag=12 if n == 1 else 0), NOW)
    store.dispatch()
    store.close(NOW)
    monkeypatch.setattr(index_check, "index_keys", lambda _: 1 / 0)
    store = scrubbed(shelf)
    monkeypatch.undo()
    assert [len(store.query("T", f"k{n}").positions) for n in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("count", [20, 1_100])
def test_keys_behind_messages_without_any_are_not_missed(
    shelf: "Shelf", draft: "MakeDraft", count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A few are looked at when the store opens, very many by the scrub."""
    store = shelf.open()
    for n in range(count + 1):
        keys = {"KEYS": "k"} if n in (0, count) else {}
        store.append(draft(b"", properties=keys, tag_code=0), NOW + n)
    while store.dispatch():
        pass
    store.close(NOW)
    store = shelf.open()
    newest = store._index.files[-1]
    assert newest.rewind(2)
    store.close(NOW)
    store = scrubbed(shelf)
    assert ("lacks records" in caplog.text) == (count > 1_000)
    assert len(store.query("T", "k").positions) == 2


def test_an_index_may_lead_in_front_of_the_log(
    shelf: "Shelf", draft: "MakeDraft", caplog: pytest.LogCaptureFixture
) -> None:
    """Retention keeps the newest file, and what came since has no keys."""
    store = shelf.open()
    store.append(draft(properties={"KEYS": "k"}, tag_code=0), NOW)
    for _ in range(200):
        store.append(draft(properties={}, tag_code=0), NOW)
    while store.dispatch():
        pass
    store.flush_all(NOW)
    assert store.expire(NOW + 10**12, at_once=True)
    store.close(NOW)
    scrubbed(shelf)
    assert "index" not in caplog.text


def test_an_index_file_that_was_made_and_never_filled_is_whole(
    shelf: "Shelf", draft: "MakeDraft", caplog: pytest.LogCaptureFixture
) -> None:
    store = shelf.open()
    store.append(draft(properties={}, tag_code=0), NOW)
    store.close(NOW)
    store = shelf.open()
    store._index.files.append(store._index._next_file(NOW))
    store.close(NOW)
    store = scrubbed(shelf)
    assert "index" not in caplog.text
