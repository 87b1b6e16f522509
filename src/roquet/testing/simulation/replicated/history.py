"""ReplicatedHistory: facts of a replicated group, as its clients, brokers and controller made them.

All times are true: ms since the start of the simulation, whatever the clock of a host says.
"""

from collections.abc import Callable

import msgspec

from roquet.rules.election.group import ReplicaGroup
from roquet.testing.simulation.history import History


class AcknowledgedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a producer was told to be stored."""

    body: str
    queue_id: int
    offset: int
    host: str
    """Broker that said so."""
    at_ms: int


class AcknowledgedPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's decision to acknowledge its log up to a position."""

    host: str
    epoch: int
    """Epoch in which the broker led when it stored the message."""
    position: int
    at_ms: int


class SeenMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a consumer was given."""

    body: str
    queue_id: int
    offset: int
    position: int
    """End of its record."""
    host: str
    """Broker that gave it."""
    at_ms: int


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the group that the controller has stored."""

    group: ReplicaGroup
    at_ms: int


class GrantedLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that the controller granted or prolonged."""

    broker_id: int
    epoch: int
    at_ms: int
    until_ms: int
    """From then on the controller may elect another broker."""


class RoleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new role of a broker's process."""

    host: str
    process: int
    """Number of the process on that host."""
    epoch: int
    leads: bool
    at_ms: int


class ReplicatedHistory(History):
    """The events of a replicated workload."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.offsets: list[AcknowledgedOffset] = []
        self.positions: list[AcknowledgedPosition] = []
        self.seen: list[SeenMessage] = []
        self.states: list[StoredState] = []
        self.leases: list[GrantedLease] = []
        self.roles: list[RoleChange] = []
        self.operated: set[int] = set()
        """Epochs of masters that an operator has had elected."""
        self.broken: list[str] = []
        """Findings of checks that run with the simulation."""

    def break_promise(self, finding: str) -> None:
        """Note a broken promise, once."""
        if finding not in self.broken:
            self.broken.append(finding)
            self.say(f"!! {finding}")

    def operate(self, winner: int, epoch: int) -> None:
        """Note that an operator has had a broker elected."""
        self.operated.add(epoch)
        self.say(f"-- an operator has had {winner} elected in epoch {epoch}")

    def acknowledged_at(self, message: AcknowledgedOffset, began_ms: int) -> None:
        """Note that a producer got the answer that its message is stored."""
        self.offsets.append(message)
        place = f"{message.queue_id}/{message.offset} by {message.host}"
        self.acknowledge(message.body, began_ms, place)

    def decided(self, position: AcknowledgedPosition) -> None:
        """Note that a broker acknowledges."""
        self.positions.append(position)

    def saw(self, message: SeenMessage) -> None:
        """Note that a consumer was given a message."""
        self.seen.append(message)

    def forget_seen(self, position: int) -> None:
        """Forget messages that consumers were given behind a position: they may be gone."""
        self.seen = [message for message in self.seen if message.position <= position]

    def saved(self, group: ReplicaGroup) -> None:
        """Note a state that the controller stored."""
        self.states.append(StoredState(group=group, at_ms=self.now_ms()))
        self.say(
            f"controller: {group.master} leads in epoch {group.master_epoch}, in sync are "
            f"{sorted(group.in_sync)} ({group.set_version})"
        )

    def granted(self, broker_id: int, epoch: int, length_ms: int) -> None:
        """Note a lease."""
        now_ms = self.now_ms()
        lease = GrantedLease(
            broker_id=broker_id, epoch=epoch, at_ms=now_ms, until_ms=now_ms + length_ms
        )
        self.leases.append(lease)

    def changed_role(self, change: RoleChange, text: str) -> None:
        """Note a broker's new role; `text` describes it."""
        self.roles.append(change)
        self.say(f"{change.host} {text} in epoch {change.epoch}")
