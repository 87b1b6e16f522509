from tests.rules.election.conftest import group_of

from roquet.controller.state_store.interface import ControllerIdentity
from roquet.controller.state_store.memory import MemoryStore


async def test_what_is_loaded_does_not_change_with_later_writes() -> None:
    store = MemoryStore()
    term = (await store.acquire(ControllerIdentity("n0", "h:1"))).term
    assert term is not None
    loaded = await store.load(term)
    await store.save(term, "bc", group_of(1), 0)
    assert loaded == {}
    assert list(await store.load(term)) == ["bc"]
