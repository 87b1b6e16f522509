"""Group answers: what the brokers of a cluster say about a group, and where they disagree."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from roquet.admin.client import AdminClient, failures_text, fault_lines, without_answers
from roquet.model import names
from roquet.model.errors import CallError
from roquet.model.names import dlq_topic
from roquet.model.subscription import ConsumeType, MessageModel
from roquet.model.topic import GroupTable
from roquet.rules.allocate import BROKER_DECIDED
from roquet.rules.balance.group_consistency import (
    members_by_value,
    unknown_members,
    without_retry_topics,
)
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.admin.topic import GetGroups
from roquet.wire.calls.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    TopicAssignment,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


class DeadLetterTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of a group's dead letters; None where a broker does not tell."""

    total: int | None
    not_resent: int | None
    """Letters after the offset up to which all were sent again."""
    newest_ms: int | None = None
    """When the newest letter was given up; None without any, or as above."""
    fault: str | None = None
    """Why a number is not known."""


async def totals(admin: AdminClient, brokers: Mapping[str, str], group: str) -> DeadLetterTotals:
    """Count a group's dead letters on these brokers; no letters where it has no such topic."""
    topic = names.dlq_topic(group)
    progress = GetConsumeStats(consumer_group=names.DLQ_READER_GROUP, topic=topic)
    (stats, unknown), (resent, untold) = await asyncio.gather(
        admin.ask_each(brokers, GetTopicStats(topic=topic)), admin.ask_each(brokers, progress)
    )
    if silent := without_answers(unknown, ResponseCode.TOPIC_NOT_EXIST):
        return DeadLetterTotals(total=None, not_resent=None, fault=failures_text(silent))
    tables = [codec.loads(reply.body, TopicStats).offset_table for reply in stats.values()]
    ends = {queue: offsets for table in tables for queue, offsets in table.items()}
    done = {
        queue: read.consumer_offset
        for reply in resent.values()
        for queue, read in codec.loads(reply.body, ConsumeStats).offset_table.items()
    }
    left = sum(
        max(0, each.max_offset - max(each.min_offset, done.get(queue, 0)))
        for queue, each in ends.items()
    )
    return DeadLetterTotals(
        total=sum(each.max_offset - each.min_offset for each in ends.values()),
        not_resent=None if untold else left,
        fault=failures_text(untold) or None,
        newest_ms=max((each.last_update_timestamp for each in ends.values()), default=0) or None,
    )


CONSUME_WORDS: Final = MappingProxyType(
    {
        ConsumeType.CONSUME_ACTIVELY: "pull",
        ConsumeType.CONSUME_PASSIVELY: "push",
        ConsumeType.CONSUME_POP: "pop",
    }
)

NO_DEAD_LETTERS: Final = DeadLetterTotals(total=0, not_resent=0)


class GroupAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all brokers about a group, by broker name."""

    name: str
    connections: Mapping[str, ConsumerConnection]
    stats: Mapping[str, ConsumeStats]
    failed: Mapping[str, CallError]
    """Errors of brokers whose part is missing."""
    hidden: Mapping[str, CallError]
    """Errors of other brokers that do not tell which groups they have, and their settings."""
    knows_members: bool
    """Whether any broker says who the members are, or that there are none."""
    dead_letters: DeadLetterTotals

    @property
    def lag(self) -> int | None:
        """Messages to handle on the brokers that tell; None when none does."""
        if not self.stats:
            return None
        return sum(p.lag for stats in self.stats.values() for p in stats.offset_table.values())

    @property
    def faults(self) -> list[str]:
        """Lines that say what is missing, and why."""
        lines = [
            f"{name} does not tell whether the group is disabled there: {error}"
            for name, error in self.hidden.items()
        ]
        return [*fault_lines(self.failed), *lines]

    @property
    def members(self) -> dict[str, ClientConnection]:
        """Members by client id; of several answers the one that reports a strategy counts."""
        members: dict[str, ClientConnection] = {}
        for answer in self.connections.values():
            for member in answer.connection_set:
                known = members.get(member.client_id)
                if known is None or known.strategy is None:
                    members[member.client_id] = member
        return dict(sorted(members.items()))

    @property
    def decisions(self) -> list[TopicAssignment]:
        """The decision of each topic; of two brokers' decisions the one with the higher number."""
        latest: dict[str, TopicAssignment] = {}
        for stats in self.stats.values():
            for decision in stats.decisions or ():
                known = latest.get(decision.topic)
                if known is None or known.number < decision.number:
                    latest[decision.topic] = decision
        return [latest[topic] for topic in sorted(latest)]

    @property
    def model(self) -> MessageModel | None:
        """Clustering or broadcasting; None without members."""
        models = [answer.message_model for answer in self.connections.values()]
        return models[0] if models else None

    @property
    def consume_type(self) -> ConsumeType | None:
        """Push, pull or pop; None without members."""
        types = [answer.consume_type for answer in self.connections.values()]
        return types[0] if types else None

    @property
    def owns_queues(self) -> bool:
        """Whether each queue has one owner: not with broadcasting, and not with pop."""
        return self.model in (MessageModel.CLUSTERING, None) and (
            self.consume_type is not ConsumeType.CONSUME_POP
        )


class GroupTables(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that brokers have, and the groups with dead letters."""

    configs: Mapping[str, GroupTable]
    """Settings of all groups by broker."""
    failed: Mapping[str, CallError]
    """Errors of brokers that do not tell their groups."""
    topics: frozenset[str]

    @property
    def names(self) -> list[str]:
        """Names of all groups."""
        tables = self.configs.values()
        return sorted({name for table in tables for name in table.subscription_group_table})

    def disabled_on(self, name: str) -> list[str]:
        """Brokers on which consumption is disabled for a group."""
        found = {b: table.subscription_group_table.get(name) for b, table in self.configs.items()}
        return [
            b for b, config in found.items() if config is not None and not config.consume_enable
        ]


async def ask_tables(admin: AdminClient, brokers: Mapping[str, str]) -> GroupTables:
    """The groups of each broker that tells them."""
    (answers, failed), topics = await asyncio.gather(
        admin.ask_each(brokers, GetGroups()), admin.topics()
    )
    return GroupTables(
        configs={b: codec.loads(reply.body, GroupTable) for b, reply in answers.items()},
        failed=failed,
        topics=frozenset(topics),
    )


async def ask_group(
    admin: AdminClient, brokers: Mapping[str, str], name: str, tables: GroupTables
) -> GroupAnswers:
    """Ask every broker about one group."""
    (members, absent), (progress, silent), dead_letters = await asyncio.gather(
        admin.ask_each(brokers, GetConnections(consumer_group=name, with_subscriptions=True)),
        admin.ask_each(brokers, GetConsumeStats(consumer_group=name, with_owners=True)),
        _dead_letters(admin, brokers, name, tables),
    )
    unknown = without_answers(absent, ResponseCode.CONSUMER_NOT_ONLINE)
    return GroupAnswers(
        name=name,
        connections={n: codec.loads(r.body, ConsumerConnection) for n, r in members.items()},
        stats={n: codec.loads(r.body, ConsumeStats) for n, r in progress.items()},
        failed={**unknown, **silent},
        hidden={n: e for n, e in tables.failed.items() if n not in unknown and n not in silent},
        knows_members=len(unknown) < len(brokers),
        dead_letters=dead_letters,
    )


async def _dead_letters(
    admin: AdminClient, brokers: Mapping[str, str], name: str, tables: GroupTables
) -> DeadLetterTotals:
    if dlq_topic(name) not in tables.topics:
        return NO_DEAD_LETTERS
    return await totals(admin, brokers, name)


def problems(group: GroupAnswers) -> Iterator[str]:
    """Problems of the members: brokers that differ about them, members that differ in settings."""
    yield from group.faults
    members = group.members
    # A broker that holds none of the group's topics need not know of its members.
    known = {n: [c.client_id for c in a.connection_set] for n, a in group.connections.items()}
    for name, stats in group.stats.items():
        if stats.offset_table:
            known.setdefault(name, [])
    for broker, unknown in unknown_members(members, known).items():
        yield f"{broker} has not heard of {', '.join(unknown)}: members differ about who they are"
    filters = {
        m.client_id: m.subscriptions and without_retry_topics(m.subscriptions)
        for m in members.values()
    }
    yield from _disagreement(
        "members listen to different things",
        [(_subscriptions_text(by_topic), who) for by_topic, who in members_by_value(filters)],
    )
    models = {m.client_id: m.message_model for m in members.values()}
    yield from _disagreement(
        "members disagree whether they share the messages",
        [(model.name, who) for model, who in members_by_value(models)],
    )
    kinds = members_by_value({m.client_id: m.consume_type for m in members.values()})
    if any(kind is ConsumeType.CONSUME_POP for kind, _ in kinds):
        # An owner of a queue reads all of it, and members that pop read it beside the owner.
        yield from _disagreement(
            "members take messages in different ways",
            [(CONSUME_WORDS[kind], who) for kind, who in kinds],
        )
    strategies = {m.client_id: m.strategy for m in members.values()}
    if not BROKER_DECIDED.isdisjoint(strategies.values()):
        # Java members do not report a strategy; theirs is certainly none of the broker's.
        strategies = {member: name or "a rule of its own" for member, name in strategies.items()}
    yield from _disagreement("members use different strategies", members_by_value(strategies))


def _disagreement(what: str, variants: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    if len(variants) > 1:
        parts = (f"{text} ({', '.join(members)})" for text, members in variants)
        yield f"{what}: {' · '.join(parts)}"


def _subscriptions_text(filters: Mapping[str, str]) -> str:
    return ", ".join(f"{topic} {text}" for topic, text in sorted(filters.items())) or "nothing"
