"""RecordingStore: a controller's state store that tells the history what is stored."""

from collections.abc import Mapping

from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipView,
    StateStore,
    StoredGroup,
)
from roquet.rules.election.group import ReplicaGroup
from simulation.replicated.history import ReplicatedHistory


class RecordingStore:
    """Another store, each of whose writes is noted once it is done; see StateStore."""

    def __init__(self, store: StateStore, history: ReplicatedHistory) -> None:
        self._store = store
        self._history = history

    async def acquire(
        self, identity: ControllerIdentity, *, in_new_term: bool = False
    ) -> LeadershipView:
        """See StateStore."""
        return await self._store.acquire(identity, in_new_term=in_new_term)

    async def load(self, term: int) -> Mapping[str, StoredGroup]:
        """See StateStore."""
        return await self._store.load(term)

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        """See StateStore."""
        saved = await self._store.save(term, name, group, revision)
        self._history.saved(group)
        return saved

    async def confirm(self, term: int) -> None:
        """See StateStore."""
        await self._store.confirm(term)

    async def close(self) -> None:
        """See StateStore."""
        await self._store.close()
