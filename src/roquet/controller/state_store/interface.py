"""StateStore: the durable state of a controller, and the leadership among several controllers.

    acquire ──▶ term ──▶ load ──▶ save, confirm … ──▶ LeadershipLost: acquire again

Every operation names the term in which it was decided. A store that has begun another term, or that
another controller leads, refuses it, so nothing that was decided in an older term is ever written.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from roquet.model.errors import RoquetError
from roquet.rules.election.group import ReplicaGroup


class StateStoreError(RoquetError):
    """A store that did not do what it was asked for.

    `definite` is true if certainly nothing was written.
    """

    def __init__(self, text: str, *, definite: bool) -> None:
        super().__init__(text)
        self.definite = definite


class LeadershipLost(StateStoreError):
    """The term is over, or the group was changed by somebody else: nothing was written."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=True)


class ControllerIdentity(msgspec.Struct, frozen=True):
    """One controller among those that share a store."""

    controller_id: str
    address: str
    """`host:port` for brokers and operators."""


class LeadershipView(msgspec.Struct, frozen=True, kw_only=True):
    """Leadership as the store has it."""

    term: int | None
    """Term in which the asking controller leads; None: another one does, or nobody."""
    leader: ControllerIdentity | None
    peers: tuple[ControllerIdentity, ...]
    """All controllers that are alive, the asking one among them."""


class StoredGroup(msgspec.Struct, frozen=True):
    """A group, and the revision to name when it is changed."""

    group: ReplicaGroup
    revision: int


class StateStore(Protocol):
    """Groups by broker name. All operations raise StateStoreError."""

    async def acquire(
        self, identity: ControllerIdentity, *, in_new_term: bool = False
    ) -> LeadershipView:
        """Become the leader if nobody leads, or go on leading; call it once in a while.

        `in_new_term` ends the controller's own term first: whatever was to be written in it, and is
        perhaps still on its way, is refused.
        """

    async def load(self, term: int) -> Mapping[str, StoredGroup]:
        """All groups, as of some moment within the term."""

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        """Write a group whose stored revision is this one, 0 for a new one; returns the next.

        When it returns, the group survives the death of the process and of its machine.
        """

    async def confirm(self, term: int) -> None:
        """Return if the controller led in this term at some moment after the call."""

    async def close(self) -> None:
        """Resign, so that another controller may lead at once. Raises nothing."""
