"""Recording store: another store, and a note of each write that was done."""

import pytest

from roquet.controller.state_store.interface import ControllerIdentity, LeadershipLost
from roquet.controller.state_store.memory import MemoryStore
from roquet.rules.election.group import ReplicaGroup
from roquet.testing.clock import in_virtual_time
from simulation.replicated.history import ReplicatedHistory
from simulation.replicated.recording_store import RecordingStore

GROUP = ReplicaGroup(cluster="c", name="g", replicas={})


@in_virtual_time
async def test_what_is_stored_is_noted_and_what_is_refused_is_not() -> None:
    history = ReplicatedHistory(lambda: 7)
    store = RecordingStore(MemoryStore(), history)
    view = await store.acquire(ControllerIdentity("c", "h:1"))
    assert view.term is not None
    assert await store.save(view.term, "g", GROUP, 0) == 1
    with pytest.raises(LeadershipLost):
        await store.save(view.term, "g", GROUP, 0)
    assert [(state.group, state.at_ms) for state in history.states] == [(GROUP, 7)]
    assert (await store.load(view.term))["g"].group == GROUP
    await store.confirm(view.term)
    with pytest.raises(LeadershipLost):
        await store.confirm(view.term + 1)
    await store.close()
