"""ReplicatedHistory: facts of a replicated group, as its clients, brokers and controller made them.

All times are true: ms since the start of the simulation, whatever the clock of a host says.
"""

from collections.abc import Callable

import msgspec

from roquet.rules.election.group import ReplicaGroup
from simulation.history import History


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


class DeferredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be delivered later: at a delay level, at a time, or once it is committed."""

    body: str
    due_ms: int
    """The earliest time of its delivery."""
    host: str
    """Broker that acknowledged it, or its commit."""
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


class ForgottenTail(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a log that was lost with the power of the only member of the set."""

    epoch: int
    """Latest epoch then: a log whose last epoch is no later may hold that part still."""
    position: int
    """Where it begins."""


class OperatorsAttempt(msgspec.Struct, kw_only=True, eq=False):
    """An operator's order to elect a broker, until its result is known."""

    winner: int
    epoch: int
    """Latest epoch when it was given."""
    on_elected: Callable[[], object]
    has_failed: bool = False
    """Whether nobody works at it any more, but its write may be on its way to the store yet."""

    def elects(self, group: ReplicaGroup) -> bool:
        """Whether a state that is stored may be its result."""
        return group.master == self.winner and group.master_epoch > self.epoch


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

    def __init__(
        self, now_ms: Callable[[], int], log_epoch: Callable[[str], int] = lambda _: 0
    ) -> None:
        """Begin without events; `log_epoch` is the last epoch in the log of a host's broker."""
        super().__init__(now_ms)
        self._log_epoch = log_epoch
        self._forgotten: list[ForgottenTail] = []
        self.offsets: list[AcknowledgedOffset] = []
        self.deferred: dict[str, DeferredMessage] = {}
        """By body: messages whose delivery was acknowledged."""
        self.rolled_back: set[str] = set()
        """Bodies of half messages whose end as rolled back was acknowledged."""
        self.settled: set[str] = set()
        """Bodies of popped messages that their consumer has handled and acknowledges."""
        self.positions: list[AcknowledgedPosition] = []
        self.seen: list[SeenMessage] = []
        self.states: list[StoredState] = []
        self.leases: list[GrantedLease] = []
        self.roles: list[RoleChange] = []
        self.operated: set[int] = set()
        """Epochs of masters that an operator has had elected."""
        self._attempts: list[OperatorsAttempt] = []
        self.broken: list[str] = []
        """Findings of checks that run with the simulation."""

    def break_promise(self, finding: str) -> None:
        """Note a broken promise, once."""
        if finding not in self.broken:
            self.broken.append(finding)
            self.say(f"!! {finding}")

    def attempt(
        self, winner: int, epoch: int, on_elected: Callable[[], object]
    ) -> OperatorsAttempt:
        """Note that an operator wants a broker to lead in a later epoch than this one.

        It is elected once that is stored, whether or not anybody gets the answer, and also if the
        operator has meanwhile ordered another election.
        """
        attempt = OperatorsAttempt(winner=winner, epoch=epoch, on_elected=on_elected)
        self._attempts.append(attempt)
        return attempt

    def withdraw_attempt(self, attempt: OperatorsAttempt) -> None:
        """Note that an operator's order was refused: nobody is elected by it any more."""
        self._attempts = [each for each in self._attempts if each is not attempt]

    def _note_operated(self, group: ReplicaGroup) -> None:
        """Note an election by an operator, if it is stored just now.

        Whatever is stored, a write of an order that failed is not carried out any more: it was for
        the state before.
        """
        fitting = [each for each in self._attempts if each.elects(group)]
        self._attempts = [each for each in self._attempts if not (fitting or each.has_failed)]
        if fitting:
            self.operated.add(group.master_epoch)
            self.say(f"-- an operator has had {group.master} elected in epoch {group.master_epoch}")
            fitting[-1].on_elected()

    def acknowledged_at(self, message: AcknowledgedOffset, began_ms: int) -> None:
        """Note that a producer got the answer that its message is stored."""
        self.offsets.append(message)
        place = f"{message.queue_id}/{message.offset} by {message.host}"
        self.acknowledge(message.body, began_ms, place)

    def deferred_at(self, message: DeferredMessage, began_ms: int) -> None:
        """Note that a broker has to deliver a message."""
        self.deferred[message.body] = message
        self.acknowledge(message.body, began_ms, f"for {message.due_ms} by {message.host}")

    def rolled_back_at(self, body: str, host: str) -> None:
        """Note that a broker must never deliver a message."""
        self.rolled_back.add(body)
        self.say(f"{host} has rolled {body} back")

    def settled_at(self, body: str, host: str) -> None:
        """Note that a consumer has handled a popped message, and tells the broker so."""
        self.settled.add(body)
        self.say(f"{body} is handled, {host} is told")

    def decided(self, position: AcknowledgedPosition) -> None:
        """Note that a broker acknowledges."""
        self.positions.append(position)

    @property
    def acknowledged_position(self) -> int:
        """Position up to which brokers have acknowledged their logs."""
        return max((each.position for each in self.positions), default=0)

    def saw(self, message: SeenMessage) -> None:
        """Note that a consumer was given a message, unless it may have to vanish."""
        if message.position <= self.lasting(message.host, message.position):
            self.seen.append(message)

    def forget(self, epoch: int, position: int) -> None:
        """Expect no more of logs up to an epoch than what is in front of a position.

        Neither of what consumers were given, nor of what brokers that know no later epoch give
        them and call confirmed.
        """
        self._forgotten.append(ForgottenTail(epoch=epoch, position=position))
        self.seen = [message for message in self.seen if message.position <= position]

    def lasting(self, host: str, position: int) -> int:
        """A position, or where the part in front of it begins that a broker has to lose."""
        if not self._forgotten:
            return position
        epoch = self._log_epoch(host)
        return min((position, *(tail.position for tail in self._forgotten if epoch <= tail.epoch)))

    def saved(self, group: ReplicaGroup) -> None:
        """Note a state that the controller stored."""
        self.states.append(StoredState(group=group, at_ms=self.now_ms()))
        self.say(
            f"controller: {group.master} leads in epoch {group.master_epoch}, in sync are "
            f"{sorted(group.in_sync)} ({group.set_version})"
        )
        self._note_operated(group)

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
