"""Role: what a broker is in its group at this moment, and who is told when that changes."""

from collections.abc import Callable

import msgspec

from roquet.model.topic import MASTER_ID
from roquet.rules.replication.acknowledgement import BrokerRole


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Role of a broker in its group, the brokers of one name."""

    role: BrokerRole = BrokerRole.ASYNC_MASTER
    broker_id: int = MASTER_ID
    """Id under which name servers know it: 0 is the master."""
    epoch: int = 0
    """Epoch of the master that it is or follows; 0 while roles are fixed."""
    master: str | None = None
    """HOST:PORT of the master that a replica follows; None: not known, or this broker itself."""
    master_stream: str | None = None
    """HOST:PORT at which that master streams its log; None: not known, or this broker itself."""
    is_fenced: bool = False
    """Whether it takes no messages for now: it does not know yet who leads, or its lease ended."""

    @property
    def is_master(self) -> bool:
        """Whether this broker leads its group."""
        return self.role is not BrokerRole.SLAVE

    @property
    def is_active(self) -> bool:
        """Whether this broker takes messages: it leads, and is not fenced."""
        return self.is_master and not self.is_fenced


class RoleCell:
    """The role of this broker, which may change while it runs."""

    def __init__(self, role: Role) -> None:
        self.current = role
        self.on_change: list[Callable[[Role, Role], None]] = []
        """Each is called with the role before and the new one, in the order of subscription."""
        self._breaks = 0
        self._has_taken_over = role.is_active

    @property
    def is_settled(self) -> bool:
        """Whether the queues and tables of this broker are those of its role.

        False while it does not know its role, and at a new master from its election until its
        queues have all that its log has (`note_taken_over`). A lease that lapses changes nothing.
        """
        role = self.current
        return self._has_taken_over if role.is_master else not role.is_fenced

    def note_taken_over(self) -> None:
        """Note that the queues of this master have all that its log has."""
        self._has_taken_over = True

    def change(self, role: Role) -> None:
        """Take another role; nothing happens if it is the same one."""
        before, self.current = self.current, role
        if before.is_active and not role.is_active:
            self._breaks += 1
        self._has_taken_over &= role.is_master
        if role != before:
            for callback in self.on_change:
                callback(before, role)

    def unbroken_activity(self) -> Callable[[], bool]:
        """Returns a function that says whether this broker has been active without a break.

        A master may be fenced and released again between two looks at its role.
        """
        breaks = self._breaks
        return lambda: self.current.is_active and self._breaks == breaks
