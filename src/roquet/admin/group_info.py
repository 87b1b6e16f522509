"""What is told of a group: its members, its queues, and what is amiss."""

import msgspec


class GroupMemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One client of a group."""

    client_id: str
    address: str
    language: str | None
    version: int
    wishes: dict[str, str] | None
    """The topics that it listens to, and which of their messages it wants."""
    strategy: str | None
    """What it asks brokers to divide by, if it does."""


class BrokerDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of which a broker said whose queue is whose."""

    topic: str
    strategy: str
    number: int


class GroupQueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as a group sees it."""

    topic: str
    broker: str
    queue_id: int
    owners: list[str] | None
    """None when that is not known."""
    committed: int
    end: int
    lag: int
    fault: str | None


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group, as all brokers together know it."""

    name: str
    message_model: str | None
    consume_type: str | None
    lag: int
    members: list[GroupMemberInfo]
    queues: list[GroupQueueInfo]
    divisions: list[BrokerDecision]
    disabled_on: list[str] = []
    """Brokers that give it no messages, since somebody has switched it off there."""
    problems: list[str]


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A group in one line."""

    name: str
    members: int
    lag: int
    disabled_on: list[str] = []
