"""Group info: a consumer group's members, queues and problems, as frozen values.

The fields are the keys of `roquet group show --json`.
"""

import msgspec


class GroupMemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One client of a group."""

    client_id: str
    address: str
    language: str | None
    version: int
    subscriptions: dict[str, str] | None
    """Subscriptions: topic to filter expression; None when the broker does not say."""
    strategy: str | None
    """The allocation strategy that it reports; None when it reports none."""
    release: str | None = None
    """The version that a gRPC client says it has; None for other clients."""
    properties: dict[str, str] | None = None
    """Properties that a gRPC client reports of itself; None when it reports none."""


class BrokerDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A queue assignment of a topic that was decided by a broker."""

    topic: str
    strategy: str
    number: int
    """Counts the broker's decisions."""


class GroupQueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group's progress in one queue."""

    topic: str
    broker: str
    queue_id: int
    owners: list[str] | None
    """Client ids; None when they are not known."""
    committed: int
    end: int
    lag: int
    fault: str | None


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group, merged from the answers of all brokers."""

    name: str
    message_model: str | None
    consume_type: str | None
    lag: int | None
    """None when no broker tells."""
    members: list[GroupMemberInfo] | None
    """None when no broker tells."""
    queues: list[GroupQueueInfo]
    assignments: list[BrokerDecision]
    disabled_on: list[str] = []
    """Brokers on which consumption is disabled for it."""
    problems: list[str]
    dead_letters: int | None = 0
    """Messages that it gave up; None when a broker does not tell."""
    dead_letters_not_resent: int | None = 0
    """Those after the last ones that were sent again all together; None as above."""

    @property
    def member_count(self) -> int | None:
        """Number of members; None when no broker tells."""
        return None if self.members is None else len(self.members)


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group in a list."""

    name: str
    members: int | None
    """None when no broker tells."""
    lag: int | None
    """None when no broker tells."""
    disabled_on: list[str] = []
    dead_letters: int | None = 0
    """Messages that it gave up; None when a broker does not tell."""
    dead_letters_not_resent: int | None = 0
    """Those after the last ones that were sent again all together; None as above."""
    faults: list[str] = []
    """Brokers whose part is missing, each with the reason."""
