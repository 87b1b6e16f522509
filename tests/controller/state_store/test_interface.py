"""What every state store promises: terms fence writes, revisions fence each other."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.controller.state_store.fake_etcd import FakeEtcd, etcd_store
from tests.rules.election.conftest import group_of, led

from roquet.controller.state_store.file import FileStore
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    StateStore,
    StateStoreError,
)
from roquet.controller.state_store.memory import MemoryStore
from roquet.store.filesystem.memory_files import MemoryFiles

ME = ControllerIdentity("n0", "h:9878")
GROUP = led(group_of(1, 2), 1, 1)

STORES: dict[str, Callable[[], StateStore]] = {
    "memory": MemoryStore,
    "file": lambda: FileStore(Path("/c"), MemoryFiles()),
    "etcd": lambda: etcd_store(FakeEtcd()),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    opened = STORES[request.param]()
    yield opened
    await opened.close()


async def term_of(store: StateStore, *, in_new_term: bool = False) -> int:
    view = await store.acquire(ME, in_new_term=in_new_term)
    assert view.leader == ME
    assert view.peers == (ME,)
    assert view.term is not None
    return view.term


async def test_a_lone_controller_leads_and_finds_what_it_wrote(store: StateStore) -> None:
    term = await term_of(store)
    assert await store.load(term) == {}
    revision = await store.save(term, "bc", GROUP, 0)
    (stored,) = (await store.load(term)).values()
    assert (stored.group, stored.revision) == (GROUP, revision)
    assert await term_of(store) == term
    await store.confirm(term)


async def test_a_group_that_was_changed_meanwhile_is_not_overwritten(store: StateStore) -> None:
    term = await term_of(store)
    revision = await store.save(term, "bc", GROUP, 0)
    for old in (0, revision + 1):
        with pytest.raises(LeadershipLost):
            await store.save(term, "bc", group_of(1), old)
    await store.save(term, "bc", led(group_of(1, 2), 2, 2), revision)
    (stored,) = (await store.load(term)).values()
    assert stored.group.master_epoch == 2


async def test_nothing_of_an_older_term_is_carried_out(store: StateStore) -> None:
    old = await term_of(store)
    new = await term_of(store, in_new_term=True)
    assert new != old
    with pytest.raises(LeadershipLost):
        await store.save(old, "bc", GROUP, 0)
    with pytest.raises(LeadershipLost):
        await store.load(old)
    with pytest.raises(LeadershipLost):
        await store.confirm(old)
    assert await store.load(new) == {}


def test_losing_the_leadership_means_that_nothing_was_written() -> None:
    error = LeadershipLost("the term is over")
    assert isinstance(error, StateStoreError)
    assert error.definite
