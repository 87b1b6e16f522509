"""One process at a time has the lease, until it has not renewed it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from roquet.lake.journal.object_journal import JournalConflict
from roquet.lake.journal.object_lease import LEASE, LeaseHeld, LeaseTimes, ObjectLease
from roquet.lake.objects.object_store import StorageFailed

LEASE_MS, RENEW_MS, GRACE_MS = LeaseTimes()


class Store:
    """The records that journals share, and the time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.version = 0
        self.written: dict[str, int] = {}
        self.revisions: dict[str, int] = {}
        self.is_away = False


class FakeJournal:
    """A journal in memory."""

    def __init__(self, store: Store) -> None:
        self.store, self.seen = store, 0

    def read(self) -> None:
        self.seen = self.store.version

    def revision(self, name: str) -> str:
        return str(self.store.revisions.get(name, ""))

    def names(self) -> list[str]:
        return sorted(self.store.written)

    def age_ms(self, name: str) -> int:
        return self.store.now_ms - self.store.written[name]

    def change(self, added: Mapping[str, bytes], removed: list[str] | tuple[()] = ()) -> None:
        if self.store.is_away:
            raise StorageFailed("the store is away")
        if self.seen != self.store.version:
            raise JournalConflict("another process has changed it")
        self.store.version = self.seen = self.store.version + 1
        self.store.written |= dict.fromkeys(added, self.store.now_ms)
        self.store.revisions |= dict.fromkeys(added, self.store.version)
        for name in removed:
            del self.store.written[name], self.store.revisions[name]


class StoppedClock:
    """A clock that goes with the store's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def now_ms(self) -> int:
        return self._store.now_ms

    def monotonic_ms(self) -> int:
        return self._store.now_ms

    async def sleep(self, ms: int) -> None:
        self._store.now_ms += ms


Take = Callable[[], ObjectLease]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def take(store: Store) -> Take:
    """Take the lease as another process."""

    def taken() -> ObjectLease:
        journal: Any = FakeJournal(store)
        return ObjectLease(journal, "another repair", None, StoppedClock(store))

    return taken


def test_the_lease_is_one_processs_until_it_is_closed(store: Store, take: Take) -> None:
    with take(), pytest.raises(LeaseHeld, match=r"^another repair works here, .* or in 360 s$"):
        take()
    with take():
        assert LEASE in store.written
    assert store.written == {}


def test_a_lease_that_is_renewed_stays(store: Store, take: Take) -> None:
    with take() as lease:
        for _ in range(10):
            store.now_ms += LEASE_MS - 1
            lease.hold()
            with pytest.raises(LeaseHeld):
                take()


def test_a_young_lease_is_not_renewed(store: Store, take: Take) -> None:
    with take() as lease:
        store.now_ms += RENEW_MS - 1
        lease.hold()
        assert store.version == 1
        store.now_ms += 1
        lease.hold()
        assert store.version == 2


def test_a_killed_process_leaves_the_lease_after_a_while(store: Store, take: Take) -> None:
    killed = take()
    store.now_ms += LEASE_MS + GRACE_MS - 1
    with pytest.raises(LeaseHeld, match=r"or in 1 s$"):
        take()
    store.now_ms += 1
    with take(), pytest.raises(LeaseHeld, match="not renewed for 360 s, and another repair may"):
        killed.hold()


def test_a_process_stops_before_another_may_begin(store: Store, take: Take) -> None:
    late = take()
    store.now_ms += LEASE_MS
    with pytest.raises(LeaseHeld, match="was not renewed"):
        late.hold()
    with pytest.raises(LeaseHeld, match="was not renewed"):
        late.check()
    with pytest.raises(LeaseHeld, match="works here"):
        take()


def test_of_two_that_begin_at_once_one_is_refused(
    store: Store, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = FakeJournal.change

    def after_another(self: FakeJournal, *args: Any) -> None:
        monkeypatch.setattr(FakeJournal, "change", change)
        take()
        change(self, *args)

    monkeypatch.setattr(FakeJournal, "change", after_another)
    with pytest.raises(LeaseHeld, match="has begun to work here, too"):
        take()


def test_a_late_process_does_not_end_the_lease_of_another(store: Store, take: Take) -> None:
    journal: Any = FakeJournal(store)
    late = ObjectLease(journal, "another repair", None, StoppedClock(store))
    store.now_ms += LEASE_MS + GRACE_MS
    other = take()
    journal.read()  # it has seen what the other has done
    late.close()
    assert LEASE in store.written
    other.close()
    assert store.written == {}


def test_a_lease_that_cannot_be_given_back_ends_by_itself(store: Store, take: Take) -> None:
    with take():
        store.is_away = True
    store.is_away = False
    assert LEASE in store.written
    store.now_ms += LEASE_MS + GRACE_MS
    with take():
        pass


def test_a_holder_ends_its_work_long_before_the_others_begin() -> None:
    assert RENEW_MS < LEASE_MS / 2
    assert GRACE_MS >= 30_000, "a step that is on its way has to end in it"
