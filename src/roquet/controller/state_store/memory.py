"""MemoryStore: groups in memory, for simulations and `roquet dev`: nothing survives the process."""

from collections.abc import Mapping

from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    LeadershipView,
    StoredGroup,
)
from roquet.rules.election.group import ReplicaGroup


class MemoryStore:
    """Groups in memory. Its one controller always leads."""

    def __init__(self) -> None:
        self._groups: dict[str, StoredGroup] = {}
        self._term = 1

    async def acquire(
        self, identity: ControllerIdentity, *, in_new_term: bool = False
    ) -> LeadershipView:
        """See StateStore."""
        self._term += in_new_term
        return LeadershipView(term=self._term, leader=identity, peers=(identity,))

    async def load(self, term: int) -> Mapping[str, StoredGroup]:
        """See StateStore."""
        self._check(term)
        return dict(self._groups)

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        """See StateStore."""
        self._check(term)
        stored = self._groups.get(name)
        if revision != (stored.revision if stored else 0):
            raise LeadershipLost(f"group {name!r} was changed by somebody else")
        self._groups[name] = StoredGroup(group, revision + 1)
        return revision + 1

    async def confirm(self, term: int) -> None:
        """See StateStore."""
        self._check(term)

    async def close(self) -> None:
        """See StateStore."""

    def _check(self, term: int) -> None:
        if term != self._term:
            raise LeadershipLost("the term is over")
